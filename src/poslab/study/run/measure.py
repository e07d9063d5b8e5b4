"""The measurements of a trained model: loss by length and position, under its own rotation and others,
retrieval, and what its scheme does.
"""

import time
from collections.abc import Callable
from functools import partial

from poslab.data.windows import validation_windows
from poslab.evaluation.extrapolation import evaluate, longest_length, rescalings
from poslab.evaluation.inspection import inspect
from poslab.evaluation.retrieval import retrieve
from poslab.model.gpt import GPT
from poslab.record.writer import RunRecord
from poslab.study.display.run_bar import RunDisplay
from poslab.study.run.plan import Job
from poslab.study.run.stopping import Stopper
from poslab.training.observer import DivergedError, SilentObserver


def measure(job: Job, gpt: GPT, record: RunRecord, display: RunDisplay, stopper: Stopper) -> None:
    """Evaluate `gpt` as the run's configuration says, and record all of it."""
    config, corpus = job.config, job.corpus
    started = time.perf_counter()
    lengths = f"lengths up to {longest_length(config)}"
    with display.phase("evaluating"):
        losses = evaluate(gpt, config, corpus, partial(display.share, lengths))
    record.write_extrapolation(losses.lengths)
    record.write_position(losses.positions)
    if config.probe.tasks:
        with display.phase("evaluating retrieval"):
            record.write_probe(retrieve(gpt, config, corpus, partial(display.share, "retrieval")))
    windows = validation_windows(corpus, config.evaluate.validation_windows, config.context_length)
    record.write_scheme(*inspect(gpt, windows, longest_length(config)))
    seconds = time.perf_counter() - started
    if rescalings(config):
        seconds += _measure_rescaled(job, gpt, record, display, stopper)
    record.update(seconds_evaluation=seconds)


def _measure_rescaled(job: Job, gpt: GPT, record: RunRecord, display: RunDisplay, stopper: Stopper) -> float:
    """Record the model's losses under other rotations; the seconds that it took."""
    # Imported here, since Lightning takes seconds and most evaluations do not need it.
    from poslab.training.loop import without_positions

    config, corpus = job.config, job.corpus
    steps = config.evaluate.recalibration_steps
    seconds = 0.0
    rescaled = {}
    for rescaling in rescalings(config):
        model = gpt
        if rescaling.method == "drop" and steps:
            try:
                with display.phase("recalibrating", steps):
                    model = without_positions(gpt, config, corpus, _Recalibration(display, stopper))
            except DivergedError as error:  # drop gets no numbers; the run's own are right
                record.update(recalibration=str(error))
                continue
        started = time.perf_counter()
        with display.phase(f"evaluating {rescaling.method}"):
            show = partial(display.share, f"{rescaling.method}, lengths up to {longest_length(config)}")
            rescaled[rescaling.method] = evaluate(model, config, corpus, show, rescaling)
        seconds += time.perf_counter() - started
    record.write_rescaled(
        [{"rescale": name, **row} for name, each in rescaled.items() for row in each.lengths],
        [{"rescale": name, **row} for name, each in rescaled.items() for row in each.positions],
    )
    return seconds


class _Recalibration(SilentObserver):
    """Shows the training after drop. It writes no checkpoints: after a stop it begins again."""

    def __init__(self, display: RunDisplay, stopper: Stopper) -> None:
        self.display = display
        self.stopper = stopper

    def started(self) -> None:
        self.stopper.reinstall_handlers()

    def step(self, step: int, loss: Callable[[], float], tokens_per_second: float) -> None:
        self.display.step(step, loss, tokens_per_second)
