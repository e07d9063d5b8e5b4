"""All that a trained model is measured for: the tables of its record beside the training curve.

Whatever is recorded of a trained model is computed here or below, so that a change makes the recorded tables
out of date, and only these: the weights stay (poslab.study.run.identity).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from poslab.config.schema import RunConfig, longest_length
from poslab.data.corpus import Corpus
from poslab.data.windows import validation_windows
from poslab.evaluation.extrapolation import Extrapolation, evaluate, rescalings
from poslab.evaluation.inspection import Inspection, Rows, inspect
from poslab.evaluation.retrieval import retrieve
from poslab.model.gpt import GPT


class Progress(Protocol):
    """Where the state of the work is shown."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """A part of the work, which lasts as long as the context."""

    def share(self, name: str, share: float) -> None:
        """`share` of the phase is done, between 0 and 1; `name` is what is being done."""


@dataclass
class Measurement:
    """The tables of a record that a trained model gives."""

    extrapolation: Extrapolation
    retrieval: Rows | None  # probe.csv; None where the model trained on no questions
    inspection: Inspection
    rescaled: Rows = field(default_factory=list)  # rescaled.csv
    rescaled_positions: Rows = field(default_factory=list)  # rescaled_position.csv


def measure(
    gpt: GPT, config: RunConfig, corpus: Corpus, progress: Progress, drop_positions: Callable[[], GPT | None]
) -> Measurement:
    """Measure a trained model as a resolved configuration asks.

    `drop_positions` returns the model without its rotation, trained on for `evaluate.recalibration_steps`
    steps, or None where that training diverged: then there are no rows of `drop`.
    """
    longest = longest_length(config)
    retrieval = None
    with progress.phase("evaluating"):
        own = evaluate(gpt, config, corpus, partial(progress.share, f"lengths up to {longest}"))
    if config.probe.tasks:
        with progress.phase("evaluating retrieval"):
            retrieval = retrieve(gpt, config, corpus, partial(progress.share, "retrieval"))
    windows = validation_windows(corpus, config.evaluate.validation_windows, config.context_length)
    result = Measurement(own, retrieval, inspect(gpt, windows, longest))
    for rescaling in rescalings(config):
        method, model = rescaling.method, gpt
        if method == "drop" and config.evaluate.recalibration_steps:
            dropped = drop_positions()
            if dropped is None:
                continue
            model = dropped
        with progress.phase(f"evaluating {method}"):
            share = partial(progress.share, f"{method}, lengths up to {longest}")
            rescaled = evaluate(model, config, corpus, share, rescaling)
        result.rescaled += [{"rescale": method, **row} for row in rescaled.lengths]
        result.rescaled_positions += [{"rescale": method, **row} for row in rescaled.positions]
    return result
