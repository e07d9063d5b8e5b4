"""Loss at the training length and past it, in non-overlapping and in sliding windows."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from poslab.config.schema import longest_length
from poslab.measures import Measurement, Row, Trained
from poslab.record.schema import EXTRAPOLATION

if TYPE_CHECKING:
    from poslab.evaluation.extrapolation import Extrapolation


class Lengths(Measurement):
    table = EXTRAPOLATION
    order = 10
    family = "extrapolation"

    def measure(self, trained: Trained) -> Iterable[Row]:
        return trained.once(extrapolated).lengths


def extrapolated(trained: Trained) -> "Extrapolation":
    """Return the losses of the trained model by length, and by position in the longest windows."""
    from poslab.evaluation.extrapolation import evaluate

    progress = trained.progress
    with progress.phase("evaluating"):
        share = partial(progress.share, f"lengths up to {longest_length(trained.config)}")
        return evaluate(trained.gpt, trained.config, trained.corpus, share)
