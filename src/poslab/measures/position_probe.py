"""How well a linear probe reads a token's position from the hidden state after each layer."""

from collections.abc import Iterable

from poslab.measures import Measurement, Row, Trained
from poslab.measures.bias import inspected
from poslab.record.schema import POSITION_PROBE


class PositionProbe(Measurement):
    table = POSITION_PROBE
    order = 45

    def measure(self, trained: Trained) -> Iterable[Row]:
        return trained.once(inspected).position_probe
