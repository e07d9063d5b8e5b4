"""Train, evaluate and record one run, resuming where an earlier process stopped."""

import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from poslab.config.schema import ConfigError
from poslab.model.gpt import GPT, build
from poslab.record.facts import Manifest
from poslab.record.files import write_atomic
from poslab.record.locks import file_lock, run_lock
from poslab.record.schema import CHECKPOINTS, ERROR, FINAL, METRICS, PROGRESS, TOKENIZER
from poslab.record.writer import RunRecord, now
from poslab.study.display.run_bar import RunDisplay
from poslab.study.launch.devices import peak_memory
from poslab.study.launch.machine import forget_peak_memory
from poslab.study.run.branches import last_stable_step, shared_state, store_shared_state
from poslab.study.run.facts import gpu_facts
from poslab.study.run.failures import failure_reason, out_of_memory
from poslab.study.run.job import Job
from poslab.study.run.measure import measure
from poslab.study.run.resume import read_state, remove_leftovers
from poslab.study.run.stopping import Stopped, Stopper
from poslab.study.run.tracking import Tracking
from poslab.training.checkpoints import FORMAT as CHECKPOINT_FORMAT
from poslab.training.checkpoints import STATE_FORMAT, remove_states, write_checkpoint, writer
from poslab.training.observer import DivergedError, Observer, State
from poslab.training.trained import fill_with

if TYPE_CHECKING:
    from pytorch_lightning import Callback
    from pytorch_lightning.loggers import Logger

    from poslab.training.loop import TrainingResult

LASTING = {"started", "wandb", "processes", "origin"}  # facts that a resumed run retains
TRAINING_PER_CHECKPOINT = 20  # the least seconds of training per second spent on writing checkpoints


def run(
    job: Job,
    display: RunDisplay,
    stopper: Stopper,
    raises: bool = False,
    callbacks: Sequence["Callback"] = (),
    loggers: Sequence["Logger"] = (),
) -> Manifest:
    """Run the job and return its manifest. A run that fails has status failed or diverged, and a reason.

    The run resumes from the newest checkpoint with the right checksum. If it is stopped, its status is
    interrupted, it has a checkpoint if it was training, and Stopped is raised. With `raises`, also raise the
    error of a failed run. `callbacks` and `loggers` are added to those of the configuration. Raise TakenError
    if another process runs the same run, and ConfigError if a newer version of poslab has recorded it.
    """
    with file_lock(run_lock(job.directory)):
        run_status = job.run_status
        if run_status.status == "newer":  # this version might lose some of its data
            raise ConfigError(f"{job.directory}: {run_status.reason}")
        if run_status.settled and run_status.manifest is not None:  # another command finished it
            return run_status.manifest
        threads = torch.get_num_threads()
        forget_peak_memory()
        try:
            return RunExecutor(job, display, stopper, raises, callbacks, loggers).run()
        finally:
            torch.set_num_threads(threads)


@dataclass(eq=False)
class RunExecutor(Observer):
    """Runs a job in this process, and observes its training."""

    job: Job
    display: RunDisplay
    stopper: Stopper
    raises: bool = False
    callbacks: Sequence["Callback"] = ()
    given_loggers: Sequence["Logger"] = ()

    def __post_init__(self) -> None:
        self.tracking: Tracking | None = None  # of a run with loggers
        self.checkpoint_at = time.monotonic()
        config = self.job.config
        self.interval = config.trainer.checkpoint_seconds
        self.shared_step = last_stable_step(config.trainer) if config.branches else None
        earlier = self.job.run_status
        recorded = earlier.manifest or Manifest()
        self.notes = [*(recorded.notes or [])]
        for line in earlier.damage:
            self._note(line)
        begun = self.job.begun
        self.state, self.trained = read_state(self.job, recorded, self._note) if begun else (None, None)
        lasting = recorded.model_dump(include=LASTING, exclude={"wandb": {"complete"}}, exclude_unset=True)
        self.memory = recorded.memory_bytes or 0
        self.record = RunRecord(self.job.directory, Manifest(**lasting))
        if not (found := self.state or self.trained) and config.branches:
            found = self.state = shared_state(self.job, self._note)
        self.rows: list[Mapping[str, Any]] = list(found["rows"]) if found else []
        self.kernel = found["kernel"] if found else None
        if found:  # the last bits of a sum depend on the number of threads
            torch.set_num_threads(found["threads"])

    def run(self) -> Manifest:
        job = self.job
        failure: Exception | None = None
        _wait_for_others()
        self._begin_record()
        try:
            if job.config.logger or self.given_loggers:
                self.tracking = Tracking(job, self.record, self.rows, self.stopper, self.given_loggers)
            self._train_and_evaluate()
            outcome: dict[str, Any] = {"status": "done", "reason": None}
        except DivergedError as error:
            failure = error
            outcome = {"status": "diverged", "reason": str(error)}
        except Stopped as stop:
            self.stopper.disarm(stop)
            self.record.update(status="interrupted", reason=str(stop), finished=now())
            if self.tracking is not None:
                self.tracking.interrupt(stop)
            raise
        except Exception as error:
            write_atomic(job.directory / ERROR, traceback.format_exc())
            failure = error
            if not (self.raises or isinstance(error, ConfigError) or out_of_memory(error)):
                traceback.print_exc()  # for the others, the reason in one line is enough
            outcome = {"status": "failed", "reason": failure_reason(error, FINAL in self.record.files)}
        outcome["finished"] = now()
        stopped = None if self.tracking is None else self.tracking.finish(**outcome)
        self._close_record(self.record.ended(**outcome))
        if stopped is not None:
            raise stopped
        if failure is not None and self.raises:
            raise failure
        return self.record.manifest

    def _begin_record(self) -> None:
        job = self.job
        if job.begun:
            remove_leftovers(job.directory)
            (job.directory / ERROR).unlink(missing_ok=True)  # from an earlier process
        earlier = self.record.manifest.as_json()
        facts = {
            "run": job.directory.name,
            "started": now(),
            **job.facts,
            **(gpu_facts() if job.config.trainer.accelerator == "cuda" else {}),
            **earlier,
            **({"files": {FINAL: self.trained["sha256"]}} if self.trained else {}),  # for the next process
            "status": "running",
            "reason": None,
            "finished": None,
            "notes": self.notes,
            "threads": torch.get_num_threads(),
            "processes": (earlier.get("processes") or 0) + 1,  # the number that have worked on the run
        }
        self.record.update(**facts)

    def _close_record(self, final_manifest: Manifest) -> None:
        """Write the final manifest, and remove the checkpoints unless the run failed.

        They are removed only once the manifest lists the final files, so that a run can resume after a crash.
        """
        if final_manifest.status == "done":
            self.record.update(files=self.record.files)
            remove_states(self.job.directory / CHECKPOINTS)
        self.record.replace(final_manifest)
        if final_manifest.status == "diverged":
            remove_states(self.job.directory / CHECKPOINTS)
        with suppress(OSError):
            (self.job.directory / PROGRESS).unlink(missing_ok=True)

    def share(self) -> None:
        """Train and measure as one of the run's other processes; process 0 writes the record."""
        _wait_for_others()
        gpt = build(self.job.config, self.job.corpus.vocabulary)
        with suppress(DivergedError):  # process 0 records it
            self._train(gpt, Observer())
            measure(self.job, gpt, None, self.display, self.stopper)

    def started(self) -> None:
        self.stopper.reinstall_handlers()

    def step(self, step: int, loss: Callable[[], float], tokens_per_second: float) -> None:
        self.display.step(step, loss, tokens_per_second)

    def row(self, row: Mapping[str, Any]) -> None:
        self.rows.append(row)
        self.record.write_table(METRICS, self.rows)
        flops = self.gpt.training_flops(row["tokens"])
        self.record.update(tokens=row["tokens"], flops=flops, seconds=row["seconds"])
        if self.tracking is not None:
            self.tracking.log(row)

    def checkpoint_due(self, step: int) -> bool:
        last = step == self.job.config.trainer.max_steps
        waited = time.monotonic() - self.checkpoint_at >= self.interval
        return last or waited or step == self.shared_step or self.stopper.number is not None

    def checkpoint(self, step: int, state: State) -> None:
        begun = time.monotonic()
        with self.stopper.uninterrupted():
            content = {**self._identified(STATE_FORMAT), **state}
            write_checkpoint(self.job.directory / CHECKPOINTS, step, content, self.stopper.check)
            if step == self.shared_step:
                store_shared_state(self.job, step, content)
        self.checkpoint_at = time.monotonic()
        seconds = self.job.config.trainer.checkpoint_seconds
        self.interval = max(seconds, TRAINING_PER_CHECKPOINT * (self.checkpoint_at - begun)) if seconds else 0
        self.stopper.check()

    def _identified(self, number: int) -> dict[str, Any]:
        return {
            "format": number,
            "identity": self.job.identity,
            "config": self.job.config.result_settings(),
            "threads": torch.get_num_threads(),
            "rows": self.rows,
            "kernel": self.gpt.kernel or self.kernel,
        }

    def _train_and_evaluate(self) -> None:
        job, record = self.job, self.record
        config, corpus = job.config, job.corpus
        self.gpt = gpt = build(config, corpus.vocabulary)
        record.update(
            parameters=gpt.parameter_count(),
            max_length=gpt.scheme.max_length,
            untrained_from=gpt.scheme.untrained_from,
        )
        if config.data["vocabulary"] != "bytes":
            record.write_file(TOKENIZER, corpus.tokenizer())
        with self.display.phase("training", config.trainer.max_steps), self.stopper.deferred():
            trained = self._train(gpt, self)
        self.stopper.check()
        if trained.step < config.trainer.max_steps and self.trained is None:
            self._note(f"a callback ended training at step {trained.step} of {config.trainer.max_steps}")
            record.update(notes=self.notes)
        record.write_table(METRICS, self.rows)
        final = self.rows[-1]
        record.update(
            tokens=final["tokens"],
            flops=gpt.training_flops(final["tokens"]),
            seconds=final["seconds"],
            kernel=gpt.kernel or self.kernel,
            seconds_validation=trained.validation_seconds,
            batches=trained.batches,
        )
        if self.trained is None:
            weights = {name: tensor.cpu() for name, tensor in gpt.state_dict().items()}
            final_state = {
                "step": trained.step,
                "weights": weights,
                "validation_seconds": trained.validation_seconds,
                "sums": {"batches": trained.batches},
            }
            record.write_file(FINAL, writer({**self._identified(CHECKPOINT_FORMAT), **final_state}))
        else:  # not written again, since the bytes of the file could differ for the same tensors
            record.files[FINAL] = self.trained["sha256"]
        measure(job, gpt, record, self.display, self.stopper)
        record.update(memory_bytes=max(self.memory, peak_memory()))

    def _train(self, gpt: GPT, observer: Observer) -> "TrainingResult":
        """Train from the newest state, from the weights of another run, or from random weights."""
        # Imported here, since Lightning takes seconds and a run that is already trained does not need it.
        from poslab.training.loop import TrainingResult, train

        job = self.job
        if self.trained is not None:
            fill_with(gpt, self.trained["weights"])
            ended = self.trained
            return TrainingResult(ended["step"], ended["validation_seconds"], ended["sums"]["batches"])
        start = job.request.start if self.state is None else None
        if start is not None:
            from poslab.training.start import begin_from

            origin = begin_from(start, gpt, job.config, job.corpus)
            if observer is self:
                self.record.update(origin=origin)
        return train(gpt, job.config, job.corpus, observer, self._take_state(), self.callbacks, start is None)

    def _take_state(self) -> State | None:
        """Return the state to resume from and drop it here: it is as large as model and optimizer."""
        state, self.state = self.state, None
        return state

    def _note(self, line: str) -> None:
        """Print the line, and add it to the record's notes."""
        self.notes.append(line)
        with suppress(OSError):
            print(f"poslab: {line}", file=sys.stderr, flush=True)


def _wait_for_others() -> None:
    """Wait until all processes of the run have read the files of earlier processes."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
