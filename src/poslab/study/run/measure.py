"""Measure a trained model, and write the tables into the record of a run or an evaluation."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from poslab.measures import Trained, wanted
from poslab.model.gpt import GPT
from poslab.record.writer import RunRecord
from poslab.study.display.run_bar import RunDisplay
from poslab.study.run.job import Job
from poslab.study.run.stopping import Stopper
from poslab.training.observer import DivergedError, Observer


def measure(job: Job, gpt: GPT, record: RunRecord | None, display: RunDisplay, stopper: Stopper) -> None:
    """Measure `gpt` as the run is configured, and record the tables and the seconds that it took.

    All of a run's processes measure, and only the first has a `record`.
    """
    started = time.perf_counter()
    recalibration = _Recalibration(job, gpt, record, display, stopper)
    trained = Trained(gpt, job.config, job.corpus, display, recalibration.drop_positions)
    for measurement in wanted(job.config):
        if (found := measurement.measure(trained)) is not None:
            rows = list(found)  # measured by every process, also where it is written by none
            if record is not None:
                record.write_table(measurement.table, rows)
    if record is not None:
        record.update(seconds_evaluation=time.perf_counter() - started - recalibration.seconds)


@dataclass(eq=False)
class _Recalibration(Observer):
    """Training after the rotation is dropped; its few steps are repeated after a stop."""

    job: Job
    gpt: GPT
    record: RunRecord | None
    display: RunDisplay
    stopper: Stopper
    seconds: float = 0.0

    def drop_positions(self) -> GPT | None:
        """Return the recalibrated model; None where it diverged, which is recorded, and the run continues."""
        # Lightning takes seconds to import, and few evaluations need it.
        from poslab.training.loop import without_positions

        config, began = self.job.config, time.perf_counter()
        try:
            with self.display.phase("recalibrating", config.evaluate.recalibration_steps):
                return without_positions(self.gpt, config, self.job.corpus, self)
        except DivergedError as error:
            if self.record is not None:
                self.record.update(recalibration=str(error))
            return None
        finally:
            self.seconds = time.perf_counter() - began

    def started(self) -> None:
        if self.record is not None:
            self.stopper.reinstall_handlers()

    def step(self, step: int, loss: Callable[[], float], tokens_per_second: float) -> None:
        self.display.step(step, loss, tokens_per_second)
