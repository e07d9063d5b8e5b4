"""How far back each head of the trained model attends."""

from collections.abc import Iterable

from poslab.measures import Measurement, Row, Trained
from poslab.measures.bias import inspected
from poslab.record.schema import ATTENTION_DISTANCE


class AttentionDistance(Measurement):
    table = ATTENTION_DISTANCE
    order = 43

    def measure(self, trained: Trained) -> Iterable[Row]:
        return trained.once(inspected).attention_distance
