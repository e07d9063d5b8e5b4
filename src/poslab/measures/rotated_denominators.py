"""What linear attention's weights would be divided by, had its denominator been rotated too."""

from collections.abc import Iterable

from poslab.measures import Measurement, Row, Trained
from poslab.measures.bias import inspected
from poslab.record.schema import ROTATED_DENOMINATORS


class RotatedDenominators(Measurement):
    table = ROTATED_DENOMINATORS
    order = 44

    def measure(self, trained: Trained) -> Iterable[Row] | None:
        return trained.once(inspected).denominators or None  # few models have any
