"""One run, made: trained, evaluated and recorded, from whatever an earlier process has reached of it.

As a program (`python -m poslab.job FILE`) it makes the run that FILE describes: so a launcher starts every
run in a fresh process.
"""

import json
import os
import platform
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from poslab.checkpoint import newest_checkpoint, packed, unpacked, write_checkpoint
from poslab.config import Config, ConfigError, Request, check
from poslab.evaluate import Extrapolation, evaluate, longest_length, rescalings
from poslab.identity import describe_versions
from poslab.lock import TakenError, alone, run_lock
from poslab.model import GPT, build
from poslab.plan import Job, plan
from poslab.processes import follow_lifeline, process_group
from poslab.progress import ProgressFile
from poslab.record import FORMAT, DamagedError, RunRecord, damaged_files, read_manifest, write_atomic
from poslab.stopping import Stopped, Stopper
from poslab.terminal import RunDisplay
from poslab.tracking import NoTracker, Tracker, by_length, first_place, open_tracker, summary

TAKEN = 75  # the exit status where another process makes the run: try again later, by sysexits.h
CLOSING = 1.5  # seconds that W&B has to take the last points when the run was asked to stop
SHARE_OF_TIME = 20  # training goes on for so many times what writing a checkpoint took, at least
CHECKPOINTS = "checkpoints"
FINAL = "checkpoint.pt"


def run(job: Job, display: RunDisplay, stopper: Stopper) -> dict[str, Any]:
    """Make the run and return its manifest; a run that fails has status failed or diverged and a reason.

    It goes on from the newest checkpoint that is as it was written. Stopped marks the run as interrupted,
    with a checkpoint where it was training, and goes on up. Raises TakenError where another process is making
    the same run.
    """
    with alone(run_lock(job.directory)):
        if job.settled:  # by another command, since this one looked
            return read_manifest(job.directory) or {}
        return _Making(job, display, stopper).run()


class _Making:
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
        # Lightning takes seconds to import: planning, or finding a run made, must not wait for it.
        from poslab.training import DivergedError

        job = self.job
        self.record.update(**{**_first_facts(job), **self.record.manifest, "status": "running"})
        self.record.update(
            reason=None,
            finished=None,
            notes=self.notes,
            threads=torch.get_num_threads(),
            processes=self.record.manifest.get("processes", 0) + 1,  # that have worked on it
        )
        config = {"study": job.config.study, **job.config.deciding()}
        named = {**config, "pos": {"name": job.request.pos, **config["pos"]}}
        found = Extrapolation()
        try:
            place = (job.config.logger.name == "wandb" and self.record.manifest.get("wandb")) or first_place(
                job.config.logger
            )
            self.record.update(wandb=place)
            self.tracker = open_tracker(
                job.config.logger, job.directory, job.config.study, job.title, named, place
            )
            self.record.update(wandb=self.tracker.place)
            for row in self.rows:
                self.tracker.log(row)
            found = self._train_and_evaluate()
            outcome: dict[str, Any] = {"status": "done", "reason": None}
        except DivergedError as error:
            outcome = {"status": "diverged", "reason": str(error)}
        except Stopped as stop:
            self.record.update(status="interrupted", reason=str(stop), finished=_now())
            self._finish_soon(stop)
            raise
        except Exception as error:
            write_atomic(job.directory / "error.txt", traceback.format_exc())
            outcome = {"status": "failed", "reason": _reason(error)}
        lengths = by_length(found.lengths)
        # Before the record is closed: a crash between the two makes the run go on, and W&B's part anew.
        self.tracker.finish(summary(outcome, lengths), lengths, exit_code=int(outcome["status"] != "done"))
        if outcome["status"] != "failed":  # a failed one may go on from its checkpoint
            self.record.update(files=self.record.files)
            shutil.rmtree(job.directory / CHECKPOINTS, ignore_errors=True)
        self.record.end(**outcome, finished=_now())
        with suppress(OSError):
            (job.directory / "progress.json").unlink(missing_ok=True)
        return self.record.manifest

    def share(self, gpt: GPT) -> None:
        """Train as one of the processes that have the batches in common, and leave the rest to number 0."""
        from poslab.training import train

        train(gpt, self.job.config, self.job.corpus, _Silent(), self.state)

    # What training tells, see poslab.training.Watcher.

    def started(self) -> None:
        self.stopper.retake()

    def row(self, row: Mapping[str, Any]) -> None:
        self.rows.append(row)
        self.record.write_metrics(self.rows)
        flops = self.gpt.training_flops(row["tokens"])
        self.record.update(tokens=row["tokens"], flops=flops, seconds=row["seconds"])
        self.tracker.log(row)

    def step(self, step: int, loss: Callable[[], float], tokens_per_second: float) -> None:
        self.display.step(step, loss, tokens_per_second)

    def may_keep(self, step: int, state: Callable[[], dict[str, Any]]) -> None:
        last = step == self.job.config.trainer.max_steps
        if last or self.stopper.number is not None or time.monotonic() - self.kept_at >= self.interval:
            begun = time.monotonic()
            write_checkpoint(self.job.directory / CHECKPOINTS, step, {**self._identified(), **state()})
            self.kept_at = time.monotonic()
            wanted = self.job.config.trainer.checkpoint_seconds
            self.interval = max(wanted, SHARE_OF_TIME * (self.kept_at - begun)) if wanted else 0
        self.stopper.check()

    def _identified(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "identity": self.job.identity,
            "config": self.job.config.deciding(),
            "threads": torch.get_num_threads(),
            "rows": self.rows,
            "kernel": self.record.manifest.get("kernel") or self.gpt.kernel,
        }

    def _train_and_evaluate(self) -> Extrapolation:
        from poslab.training import train

        config, corpus, record = self.job.config, self.job.corpus, self.record
        self.gpt = gpt = build(config, corpus.vocabulary)
        record.update(parameters=gpt.parameter_count(), max_length=gpt.scheme.max_length)
        with self.display.phase("training", config.trainer.max_steps), self.stopper.held():
            trained = train(gpt, config, corpus, self, self.state)
        self.stopper.check()
        record.write_metrics(self.rows)
        final = self.rows[-1]
        record.update(
            tokens=final["tokens"],
            flops=gpt.training_flops(final["tokens"]),
            seconds=final["seconds"],
            kernel=gpt.kernel or (self.state or {})["kernel"],
            seconds_validation=trained.validation_seconds,
            batches=trained.batches,
        )
        weights = {name: tensor.cpu() for name, tensor in gpt.state_dict().items()}
        sums = {"batches": trained.batches}
        reached = {
            "step": config.trainer.max_steps,
            "weights": weights,
            "validation_seconds": trained.validation_seconds,
        }
        record.write_checkpoint(packed({**self._identified(), **reached, "sums": sums}))
        return self._evaluate(gpt)

    def _evaluate(self, gpt: GPT) -> Extrapolation:
        config, corpus, record = self.job.config, self.job.corpus, self.record
        started = time.perf_counter()
        told = f"lengths up to {longest_length(config)}"
        with self.display.phase("evaluating"):
            found = evaluate(gpt, config, corpus, partial(self.display.share, told))
        record.write_extrapolation(found.lengths)
        record.write_position(found.positions)
        seconds = time.perf_counter() - started
        if rescalings(config):
            seconds += self._evaluate_rescaled(gpt, told)
        record.update(seconds_evaluation=seconds)
        return found

    def _evaluate_rescaled(self, gpt: GPT, told: str) -> float:
        """Record what the model does under other rotations; the seconds that it took."""
        from poslab.training import DivergedError, without_positions

        config, corpus = self.job.config, self.job.corpus
        steps = config.evaluate.recalibration_steps
        seconds = 0.0
        rescaled = {}
        for rescaling in rescalings(config):
            model = gpt
            if rescaling.method == "drop" and steps:
                try:
                    with self.display.phase("recalibrating", steps):
                        model = without_positions(gpt, config, corpus, _Recalibration(self))
                except DivergedError as error:  # its line stays without numbers; the run itself is sound
                    self.record.update(recalibration=str(error))
                    continue
            started = time.perf_counter()
            with self.display.phase(f"evaluating {rescaling.method}"):
                show = partial(self.display.share, f"{rescaling.method}, {told}")
                rescaled[rescaling.method] = evaluate(model, config, corpus, show, rescaling)
            seconds += time.perf_counter() - started
        self.record.write_rescaled(
            [{"rescale": name, **row} for name, each in rescaled.items() for row in each.lengths],
            [{"rescale": name, **row} for name, each in rescaled.items() for row in each.positions],
        )
        return seconds

    def _finish_soon(self, stop: Stopped) -> None:
        """Close W&B's run if that is quick; what it has not sent by then is on disk."""
        closing = threading.Thread(
            target=lambda: self.tracker.finish({"status": "interrupted"}, [], exit_code=stop.status),
            daemon=True,
        )
        closing.start()
        closing.join(CLOSING)

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
            return unpacked((directory / FINAL).read_bytes())
        return None

    def _note(self, line: str) -> None:
        """Say what was found, and keep it in the record."""
        self.notes.append(line)
        with suppress(OSError):
            print(f"poslab: {line}", file=sys.stderr, flush=True)


class _Silent:
    """A watcher that is not told anything: of the processes that keep no record."""

    def started(self) -> None:
        pass

    def row(self, row: Mapping[str, Any]) -> None:
        pass

    def step(self, step: int, loss: Callable[[], float], tokens_per_second: float) -> None:
        pass

    def may_keep(self, step: int, state: Callable[[], dict[str, Any]]) -> None:
        pass


class _Recalibration(_Silent):
    """A watcher of the steps after drop: they are short, and after a stop they begin again."""

    def __init__(self, making: _Making) -> None:
        self.making = making

    def started(self) -> None:
        self.making.stopper.retake()

    def step(self, step: int, loss: Callable[[], float], tokens_per_second: float) -> None:
        self.making.display.step(step, loss, tokens_per_second)


def _reason(error: Exception) -> str:
    """One line, which for memory says what to do."""
    message = (str(error).splitlines() or ["no message"])[0]
    told = str(error).lower()
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in told:
        return (
            f"out of memory ({message}): choose a smaller trainer.batch_size or a larger trainer.accumulate"
        )
    return f"{type(error).__name__}: {message}"


def load(directory: Path) -> GPT:
    """The trained model of a run directory, in evaluation mode on the CPU. Raises DamagedError."""
    manifest = read_manifest(directory)
    if manifest is None or FINAL not in (manifest.get("files") or {}):
        raise ConfigError(f"{directory} holds no finished run")
    if FINAL in damaged_files(directory, manifest):
        raise DamagedError(f"{directory / FINAL} is damaged")
    saved = unpacked((directory / FINAL).read_bytes())
    sections = {"study": "loaded", "logger": {"name": "local"}, "launcher": {"name": "local"}}
    trainer = {**saved["config"]["trainer"], "checkpoint_seconds": 0}
    config = check(Config, {**saved["config"], **sections, "trainer": trainer}, "")
    gpt = build(config, saved["weights"]["embedding.weight"].shape[0])
    gpt.load_state_dict(saved["weights"])
    return gpt.eval()


def _first_facts(job: Job) -> dict[str, Any]:
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
        "config": config.deciding(),
        "code": job.code.shared,
        "code_parts": job.code.parts,
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


def as_json(job: Job, runs: Path, title: str) -> str:
    """What another process needs to make the run: FILE of `python -m poslab.job FILE`."""
    return json.dumps(
        {
            "config": job.request.config.model_dump(mode="json"),
            "pos": job.request.pos,
            "attention": job.request.attention,
            "identity": job.identity,
            "runs": str(runs),
            "title": title,
        }
    )


def main() -> int:
    """Make the run that a file describes; the exit status."""
    try:
        with Stopper().installed() as stopper:
            follow_lifeline()
            return _make(json.loads(Path(sys.argv[1]).read_text()), stopper)
    except ConfigError as error:
        print(f"poslab: {error}", file=sys.stderr)
        return 2
    except TakenError:
        return TAKEN
    except Stopped as stop:
        return stop.status


def _make(told: Mapping[str, Any], stopper: Stopper) -> int:
    request = Request(check(Config, told["config"], ""), told["pos"], told["attention"])
    command = [sys.executable, "-m", "poslab.job", *sys.argv[1:]]
    slurm = request.config.launcher.get("name") == "slurm"
    job = plan(request, Path(told["runs"]))
    if job.identity != told["identity"]:
        raise ConfigError("code or data changed since the study began: give the command again")

    def on_lost(reason: str) -> None:
        manifest = read_manifest(job.directory) or {}
        RunRecord(job.directory, manifest).update(status="failed", reason=reason)
        os._exit(1)

    with process_group(request.config.trainer, slurm, command, on_lost) as number:
        display = RunDisplay(told["title"], progress=ProgressFile(job.directory))
        if number:
            _Making(job, display, stopper).share(build(job.config, job.corpus.vocabulary))
            return 0
        return int(run(job, display, stopper)["status"] != "done")


if __name__ == "__main__":
    status = main()
    with suppress(OSError):  # a log file on a full disk
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)  # nothing is left to do, and W&B's service would be waited for
