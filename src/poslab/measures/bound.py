"""RoPE's upper bound of decay, by distance (Su et al. 2021, section 3.4.3)."""

from collections.abc import Iterable

from poslab.measures import Measurement, Row, Trained
from poslab.measures.bias import inspected
from poslab.record.schema import SCHEME_BOUND


class Bound(Measurement):
    table = SCHEME_BOUND
    order = 42
    family = "scheme"

    def measure(self, trained: Trained) -> Iterable[Row]:
        return trained.once(inspected).bound
