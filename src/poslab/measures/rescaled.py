"""Loss by length of the trained model under other rotations (evaluate.rescale)."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from poslab.config.schema import RunConfig, longest_length, rescaled_by
from poslab.measures import Measurement, Row, Trained
from poslab.record.schema import RESCALED

if TYPE_CHECKING:
    from poslab.evaluation.extrapolation import Extrapolation


class Rescaled(Measurement):
    table = RESCALED
    order = 90  # `drop` trains on, and is the last to use the model

    def wanted(self, config: RunConfig) -> bool:
        return bool(rescaled_by(config))

    def measure(self, trained: Trained) -> Iterable[Row]:
        return rows(trained, "lengths")


def rows(trained: Trained, table: str) -> list[dict[str, Any]]:
    """The rows of one table of every rescaling, `lengths` or `positions`."""
    measured = trained.once(rescaled)
    return [{"rescale": method, **row} for method, sums in measured.items() for row in getattr(sums, table)]


def rescaled(trained: Trained) -> "dict[str, Extrapolation]":
    """The losses of the trained model under each other rotation.

    `drop` has none where training on without the rotation diverged.
    """
    from poslab.evaluation.extrapolation import evaluate, rescalings

    config, progress = trained.config, trained.progress
    measured = {}
    for rescaling in rescalings(config):
        method, model = rescaling.method, trained.gpt
        if method == "drop" and config.evaluate.recalibration_steps:
            dropped = trained.without_positions()
            if dropped is None:
                continue
            model = dropped
        with progress.phase(f"evaluating {method}"):
            share = partial(progress.share, f"{method}, lengths up to {longest_length(config)}")
            measured[method] = evaluate(model, config, trained.corpus, share, rescaling)
    return measured
