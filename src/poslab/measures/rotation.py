"""In how many tokens each pair of the trained scheme turns once."""

from collections.abc import Iterable

from poslab.measures import Measurement, Row, Trained
from poslab.measures.bias import inspected
from poslab.record.schema import SCHEME_ROTATION


class Rotation(Measurement):
    table = SCHEME_ROTATION
    order = 41

    def measure(self, trained: Trained) -> Iterable[Row]:
        return trained.once(inspected).rotation
