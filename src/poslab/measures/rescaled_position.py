"""Loss by position of the trained model under other rotations."""

from collections.abc import Iterable

from poslab.config.schema import RunConfig, rescaled_by
from poslab.measures import Measurement, Row, Trained
from poslab.measures.rescaled import rows
from poslab.record.schema import RESCALED_POSITION


class RescaledPosition(Measurement):
    table = RESCALED_POSITION
    order = 91

    def wanted(self, config: RunConfig) -> bool:
        return bool(rescaled_by(config))

    def measure(self, trained: Trained) -> Iterable[Row]:
        return rows(trained, "positions")
