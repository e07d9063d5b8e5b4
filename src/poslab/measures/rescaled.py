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
    order = 90  # last, since `drop` trains the model further

    def wanted(self, config: RunConfig) -> bool:
        return bool(rescaled_by(config))

    def measure(self, trained: Trained) -> Iterable[Row]:
        return rows(trained, "lengths")


def rows(trained: Trained, table: str) -> list[dict[str, Any]]:
    """Return the rows of one table, `lengths` or `positions`, of every rescaling."""
    measured = trained.once(rescaled)
    return [{"rescale": method, **row} for method, sums in measured.items() for row in getattr(sums, table)]


def rescaled(trained: Trained) -> "dict[str, Extrapolation]":
    """Return the losses of the trained model under each other rotation.

    `drop` is missing if training further without the rotation diverged.
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
