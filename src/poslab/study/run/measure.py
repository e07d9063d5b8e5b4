"""Measure a trained model, and write the tables to the record of a run or an evaluation."""

import time
from collections.abc import Callable

from poslab.evaluation.losses import evaluating
from poslab.measures import Trained, plain_row, wanted
from poslab.model.gpt import GPT
from poslab.record.writer import RunRecord
from poslab.study.display.run_bar import RunDisplay
from poslab.study.run.job import Job
from poslab.study.run.stopping import Stopper
from poslab.training.observer import DivergedError, Observer


class _Recalibration(Observer):
    """Shows the steps of recalibration, and lets signals stop it."""

    def __init__(self, display: RunDisplay, stopper: Stopper) -> None:
        self.display, self.stopper = display, stopper

    def started(self) -> None:
        self.stopper.reinstall_handlers()

    def step(self, step: int, loss: Callable[[], float], tokens_per_second: float) -> None:
        self.display.step(step, loss, tokens_per_second)


def measure(job: Job, gpt: GPT, record: RunRecord | None, display: RunDisplay, stopper: Stopper) -> None:
    """Measure `gpt` as the run's settings say, and record the tables and the seconds that this took.

    All processes of a run measure, but only the first has a `record`.
    """
    started, recalibration = time.perf_counter(), 0.0

    def recalibrated() -> GPT | None:
        """Return a copy trained further without rotation; if that diverges, record it and return None.

        Its few steps are repeated after a stop.
        """
        # Lightning takes seconds to import, and few evaluations need it.
        from poslab.training.loop import without_positions

        nonlocal recalibration
        began = time.perf_counter()
        observer = Observer() if record is None else _Recalibration(display, stopper)
        try:
            with display.phase("recalibrating", job.config.evaluate.recalibration_steps):
                return without_positions(gpt, job.config, job.corpus, observer)
        except DivergedError as error:
            if record is not None:
                record.update(recalibration=str(error))
            return None
        finally:
            recalibration = time.perf_counter() - began

    trained = Trained(gpt, job.config, job.corpus, display, recalibrated)
    for measurement in wanted(job.config):
        with evaluating(gpt):
            table = measurement.measure(trained)
            rows = None if table is None else list(table)  # in every process, even if it writes no record
        if rows is not None and record is not None:
            record.write_table(measurement.table, [plain_row(measurement, row) for row in rows])
    if record is not None:
        record.update(seconds_evaluation=time.perf_counter() - started - recalibration)
