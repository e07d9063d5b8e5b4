"""Loss by position in the longest windows."""

from collections.abc import Iterable

from poslab.measures import Measurement, Row, Trained
from poslab.measures.lengths import extrapolated
from poslab.record.schema import POSITION


class Position(Measurement):
    table = POSITION
    order = 20

    def measure(self, trained: Trained) -> Iterable[Row]:
        return trained.once(extrapolated).positions
