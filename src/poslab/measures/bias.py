"""What the trained scheme adds to a logit, by layer, head and distance."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from poslab.config.schema import longest_length
from poslab.measures import Measurement, Row, Trained
from poslab.record.schema import SCHEME_BIAS

if TYPE_CHECKING:
    from poslab.evaluation.inspection import Inspection


class Bias(Measurement):
    table = SCHEME_BIAS
    order = 40
    family = "scheme"

    def measure(self, trained: Trained) -> Iterable[Row]:
        return trained.once(inspected).bias


def inspected(trained: Trained) -> "Inspection":
    """What a pass over the validation windows shows of the trained scheme and its attention."""
    from poslab.data.windows import validation_windows
    from poslab.evaluation.inspection import inspect

    config = trained.config
    windows = validation_windows(trained.corpus, config.evaluate.validation_windows, config.context_length)
    return inspect(trained.gpt, windows, longest_length(config))
