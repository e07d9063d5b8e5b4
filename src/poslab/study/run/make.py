"""One run, made: trained, evaluated and recorded, from whatever an earlier process has reached of it."""

import platform
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import torch

from poslab.model.gpt import GPT, build
from poslab.record.files import DamagedError, sealed, write_atomic
from poslab.record.locks import holding, run_lock
from poslab.record.manifest import damaged_files, read_manifest
from poslab.record.schema import FINAL, FORMAT
from poslab.record.writer import RunRecord
from poslab.study.display.run_bar import RunDisplay
from poslab.study.launch.devices import peak_memory
from poslab.study.run.identity import describe_versions
from poslab.study.run.measure import measure
from poslab.study.run.plan import Job
from poslab.study.run.stopping import Stopped, Stopper
from poslab.tracking import NoTracker, Tracker, first_place, open_tracker
from poslab.training.checkpoints import from_bytes, newest_checkpoint, to_bytes, write_checkpoint
from poslab.training.observer import DivergedError, SilentObserver

OPENING = 30.0  # seconds that the end of a run waits until W&B is open
CLOSING = 1.0  # seconds that W&B has to take the last points when the run was asked to stop
SHARE_OF_TIME = 20  # training goes on for so many times what writing a checkpoint took, at least
CHECKPOINTS = "checkpoints"


def run(job: Job, display: RunDisplay, stopper: Stopper) -> dict[str, Any]:
    """Make the run and return its manifest; a run that fails has status failed or diverged and a reason.

    It goes on from the newest checkpoint that is as it was written. Stopped marks the run as interrupted,
    with a checkpoint where it was training, and goes on up. Raises TakenError where another process is making
    the same run.
    """
    with holding(run_lock(job.directory)):
        if job.settled:  # by another command, since this one looked
            return read_manifest(job.directory) or {}
        return Making(job, display, stopper).run()


class Making:
    """A run that is being made by this process."""

    def __init__(self, job: Job, display: RunDisplay, stopper: Stopper) -> None:
        self.job = job
        self.display = display
        self.stopper = stopper
        self.rows: list[Mapping[str, Any]] = []
        self.tracker: Tracker = NoTracker()
        self.kept_at = time.monotonic()
        self.interval = job.config.trainer.checkpoint_seconds
        self.notes: list[str] = []
        self.final: str | None = None  # the SHA-256 of the final weights, where an earlier process left them
        earlier = self._earlier_manifest()
        self.state = self._reached(earlier)
        kept = ("started", "wandb", "notes", "processes")
        self.record = RunRecord(job.directory, {name: earlier[name] for name in kept if name in earlier})
        if self.state:
            self.rows = list(self.state["rows"])
            # Sums are split by threads: with another number the last bits would differ.
            torch.set_num_threads(self.state["threads"])
        self.notes = [*earlier.get("notes", []), *self.notes]

    def run(self) -> dict[str, Any]:
        job = self.job
        for folder in (job.directory, job.directory / CHECKPOINTS):
            for left in folder.glob(".*"):  # half a file, of a process that was killed
                left.unlink(missing_ok=True)
        self.record.update(**{**first_facts(job), **self.record.manifest, "status": "running"})
        self.record.update(
            reason=None,
            finished=None,
            notes=self.notes,
            threads=torch.get_num_threads(),
            processes=self.record.manifest.get("processes", 0) + 1,  # that have worked on it
        )
        try:
            place = first_place(job.config.logger, job.directory, self.record.manifest.get("wandb"))
            self.record.update(wandb=place)
            manifest = sealed(self.record.manifest)
            self.tracker = open_tracker(
                job.config.logger, job.card, job.directory, manifest, place, self.rows, self.stopper.request
            )
            self._train_and_evaluate()
            outcome: dict[str, Any] = {"status": "done", "reason": None}
        except DivergedError as error:
            outcome = {"status": "diverged", "reason": str(error)}
        except Stopped as stop:
            self.stopper.disarm()
            self._note_place()
            self.record.update(status="interrupted", reason=str(stop), finished=_now())
            self.tracker.finish(sealed(self.record.manifest), stop.status, CLOSING)
            raise
        except Exception as error:
            write_atomic(job.directory / "error.txt", traceback.format_exc())
            outcome = {"status": "failed", "reason": _reason(error)}
        ended, stopped = self._finish_tracking(outcome)
        # What a crash in between leaves is enough to go on from. A failed run keeps its checkpoints.
        if outcome["status"] == "done":
            self.record.update(files=self.record.files)
            shutil.rmtree(job.directory / CHECKPOINTS, ignore_errors=True)
        self.record.update(**ended)
        if outcome["status"] == "diverged":
            shutil.rmtree(job.directory / CHECKPOINTS, ignore_errors=True)
        with suppress(OSError):
            (job.directory / "progress.json").unlink(missing_ok=True)
        if stopped is not None:
            raise stopped
        return self.record.manifest

    def _finish_tracking(self, outcome: Mapping[str, Any]) -> tuple[dict[str, Any], Stopped | None]:
        """The manifest that closes the record, once W&B has it, and whether the run was asked to stop.

        Before the record is closed: a crash between the two makes the run go on, and W&B's part anew. A stop
        takes nothing from what is made: what W&B lacks then is sent by the next command.
        """
        finished, stopped = _now(), None
        try:
            self._note_place(OPENING)
            place = self.record.manifest.get("wandb") or {}
            sent = {**place, "complete": True} if "mode" in place else place or None
            ended = self.record.ended(**outcome, finished=finished, wandb=sent)
            self.tracker.finish(sealed(ended), int(outcome["status"] != "done"))
        except Stopped as stop:
            self.stopper.disarm()
            stopped = stop
        self._note_place()
        return self.record.ended(**outcome, finished=finished), stopped

    def share(self, gpt: GPT) -> None:
        """Train as one of the processes that have the batches in common, and leave the rest to number 0."""
        from poslab.training.loop import train

        train(gpt, self.job.config, self.job.corpus, SilentObserver(), self._take_state())

    # The methods of poslab.training.observer.Observer.

    def started(self) -> None:
        self.stopper.reinstall_handlers()

    def row(self, row: Mapping[str, Any]) -> None:
        self.rows.append(row)
        self.record.write_metrics(self.rows)
        flops = self.gpt.training_flops(row["tokens"])
        self._note_place()
        self.record.update(tokens=row["tokens"], flops=flops, seconds=row["seconds"])
        self.tracker.log({**row, "memory_bytes": peak_memory()})

    def step(self, step: int, loss: Callable[[], float], tokens_per_second: float) -> None:
        self.display.step(step, loss, tokens_per_second)

    def maybe_checkpoint(self, step: int, state: Callable[[], dict[str, Any]]) -> None:
        last = step == self.job.config.trainer.max_steps
        if last or self.stopper.number is not None or time.monotonic() - self.kept_at >= self.interval:
            begun = time.monotonic()
            with self.stopper.uninterrupted():
                write_checkpoint(self.job.directory / CHECKPOINTS, step, {**self._identified(), **state()})
            self.kept_at = time.monotonic()
            wanted = self.job.config.trainer.checkpoint_seconds
            self.interval = max(wanted, SHARE_OF_TIME * (self.kept_at - begun)) if wanted else 0
        self.stopper.check()

    def _identified(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "identity": self.job.identity,
            "config": self.job.config.result_settings(),
            "threads": torch.get_num_threads(),
            "rows": self.rows,
            "kernel": self.record.manifest.get("kernel") or self.gpt.kernel,
        }

    def _note_place(self, wait: float = 0.0) -> None:
        """Where the run is in W&B, once that is known; an id once given stays the run's."""
        known, found = self.record.manifest.get("wandb"), self.tracker.place(wait)
        self.record.manifest["wandb"] = {"id": (known or {}).get("id"), **found} if found else known

    def _train_and_evaluate(self) -> None:
        # Lightning takes seconds to import: planning, or finding a run made, must not wait for it, and W&B is
        # opened meanwhile.
        from poslab.training.loop import train

        job, record = self.job, self.record
        config, corpus = job.config, job.corpus
        self.gpt = gpt = build(config, corpus.vocabulary)
        record.update(parameters=gpt.parameter_count(), max_length=gpt.scheme.max_length)
        kernel = (self.state or {}).get("kernel")
        with self.display.phase("training", config.trainer.max_steps), self.stopper.deferred():
            trained = train(gpt, config, corpus, self, self._take_state())
        self.stopper.check()
        record.write_metrics(self.rows)
        final = self.rows[-1]
        record.update(
            tokens=final["tokens"],
            flops=gpt.training_flops(final["tokens"]),
            seconds=final["seconds"],
            kernel=gpt.kernel or kernel,
            seconds_validation=trained.validation_seconds,
            batches=trained.batches,
        )
        if self.final is None:
            weights = {name: tensor.cpu() for name, tensor in gpt.state_dict().items()}
            reached = {
                "step": config.trainer.max_steps,
                "weights": weights,
                "validation_seconds": trained.validation_seconds,
                "sums": {"batches": trained.batches},
            }
            record.write_checkpoint(to_bytes({**self._identified(), **reached}))
        else:  # as they lie there: written again, the same tensors need not have the same bytes
            record.files[FINAL] = self.final
        measure(job, gpt, record, self.display, self.stopper)
        record.update(memory_bytes=peak_memory())

    def _take_state(self) -> dict[str, Any] | None:
        """The state to go on from, which is not kept: it is as large as all that training holds."""
        state, self.state = self.state, None
        return state

    def _earlier_manifest(self) -> dict[str, Any]:
        try:
            return read_manifest(self.job.directory) or {}
        except DamagedError as error:
            self._note(str(error))
            return {}

    def _reached(self, earlier: Mapping[str, Any]) -> dict[str, Any] | None:
        """The newest state of the run that is as it was written, of this or an earlier process."""
        directory = self.job.directory
        found = newest_checkpoint(directory / CHECKPOINTS, self.job.identity, self._note)
        if found is not None:
            return found
        damaged = damaged_files(directory, earlier)
        for name in damaged:
            self._note(f"{directory / name} is damaged and is made again")
        if FINAL in earlier.get("files", {}) and FINAL not in damaged:
            self.final = earlier["files"][FINAL]
            return from_bytes((directory / FINAL).read_bytes())
        return None

    def _note(self, line: str) -> None:
        """Say what was found, and keep it in the record."""
        self.notes.append(line)
        with suppress(OSError):
            print(f"poslab: {line}", file=sys.stderr, flush=True)


def _reason(error: Exception) -> str:
    """One line, which for memory says what to do."""
    message = (str(error).splitlines() or ["no message"])[0]
    told = str(error).lower()
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in told:
        return (
            f"out of memory ({message}): choose a smaller trainer.batch_size or a larger trainer.accumulate"
        )
    return f"{type(error).__name__}: {message}"


def first_facts(job: Job) -> dict[str, Any]:
    """What a record says from its start: of what was asked for, and where it is made."""
    config = job.config
    cuda = config.trainer.accelerator == "cuda"
    return {
        "format": FORMAT,
        "study": config.study,
        "run": job.directory.name,
        "identity": job.identity,
        "status": "running",
        "reason": None,
        "pos": job.request.pos,
        "attention": job.request.attention,
        "seed": config.seed,
        "config": config.result_settings(),
        "code": job.code.shared,
        "code_parts": job.code.parts,
        "code_evaluation": job.code.evaluation,
        "data": job.corpus.describe(),
        "versions": describe_versions(),
        "device": torch.cuda.get_device_name() if cuda else f"cpu ({platform.machine()})",
        "threads": torch.get_num_threads(),
        "precision": config.trainer.precision,
        "started": _now(),
        "finished": None,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
