"""Run a study's runs on a launcher: start them as devices become free, watch them, restart lost ones."""

import math
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from poslab.config.schema import ConfigError
from poslab.config.text import counted, without_secrets
from poslab.loggers import LOGGER_FAILED
from poslab.loggers.wandb import Wandb
from poslab.record.facts import Manifest
from poslab.record.files import FULL, remove_unfinished, write_atomic
from poslab.record.locks import TakenError, file_lock, is_taken, run_lock
from poslab.record.manifest import read_manifest
from poslab.record.schema import LOG
from poslab.record.seal import UnreadableError
from poslab.record.writer import RunRecord
from poslab.study.display.study_view import Entry, StudyDisplay
from poslab.study.launch.contract import End, Launcher, Task
from poslab.study.launch.machine import size_text
from poslab.study.run.budget import estimate
from poslab.study.run.job import Job, RunStatus
from poslab.study.run.stopping import Stopped, Stopper
from poslab.study.run.worker import (
    ANOTHER_PROCESS_RUNS_IT,
    PRELOAD,
    PROCESS_KILLED,
    STOPPED_IN_WANDB,
    WORKER,
    request_file,
    request_text,
    run_in_command,
)
from poslab.study.schedule import fits, fullest_place
from poslab.study.status import succeeded

SECONDS_UNTIL_NOTICE = 4.0  # after which a stopped study prints that runs are writing checkpoints
SECONDS_UNTIL_KILL = 60.0  # the time that runs of a stopped study have to write their checkpoints
IDLE_SECONDS = 5.0  # without a free device, after which that is printed
POLL_SECONDS = 0.2  # between two checks of the study's processes
SLOW_POLL_SECONDS = 1.0  # between two checks of runs of other commands, and of the disk
PERHAPS_MEMORY = (
    "; if memory ran out, choose a smaller trainer.batch_size, a larger trainer.accumulate, or a larger "
    "launcher.cores_per_run, so that fewer runs share the memory"
)
LITTLE_SPACE = 64 * 1024  # a disk with fewer free bytes counts as full
UNFINISHED = ("waiting", "running", "elsewhere")  # states of runs for which the pool waits


@dataclass(kw_only=True)
class Member(Entry):
    """A run of the study."""

    job: Job
    task: Task
    memory: int  # bytes that it is likely to use
    started: int = 0  # number of processes started for it so far
    request_written: bool = False  # whether the file that its process reads was written
    waits_for_disk: bool = False
    log_begin: int = 0  # bytes in its log from earlier processes

    @classmethod
    def of(cls, job: Job) -> "Member":
        """Return a member for the job, in the state waiting."""
        trainer = job.config.trainer
        task = Task(
            name=job.directory.name,
            command=(*WORKER, str(request_file(job.directory).resolve())),
            preload=PRELOAD,
            run_in_process=partial(run_in_command, job),
            working_directory=Path.cwd(),
            log=job.directory.resolve() / LOG,
            study=job.directory.parent.resolve(),
            cuda=trainer.accelerator == "cuda",
            devices=trainer.devices,
            nodes=trainer.nodes,
        )
        memory = estimate(job.size)
        return cls(job.request.title, job.directory, "waiting", job=job, task=task, memory=memory)

    def show_end(self, run_status: RunStatus) -> None:
        """Set the state and the note of a run that has ended."""
        self.note = run_status.reason or ""
        self.state = "done" if run_status.manifest and succeeded(run_status.manifest) else "failed"


@dataclass(eq=False)
class Pool:
    """Runs the runs of a study; a run that loses its process is restarted at most `restarts` times.

    `memory` has the bytes that runs share: those of the machine for runs on CPU (False), and of each GPU for
    runs on GPUs (True). Without an entry, runs do not wait for memory.
    """

    members: Sequence[Member]
    launcher: Launcher
    restarts: int
    display: StudyDisplay
    stopper: Stopper
    memory: Mapping[bool, Sequence[int]]

    def __post_init__(self) -> None:
        self.memory_notice_printed = False
        self.logger_failures: set[str] = set()  # the lines of logs that were printed
        # Runs that the launcher has, also in its queue; by log, since two studies may have runs of one name.
        self.running: dict[Path, Member] = {}
        self.slow_poll_at = 0.0
        self.idle_since: float | None = None

    def run(self) -> None:
        """Run all runs, and return once each has ended. Upon a signal, stop them, wait, and raise Stopped."""
        try:
            with self.stopper.deferred():
                while any(member.state in UNFINISHED for member in self.members):
                    self.stopper.check()
                    self._step()
                    time.sleep(POLL_SECONDS)
        except Stopped as stop:
            self.stopper.disarm(stop)
            self._stop()
            raise
        except BaseException:
            if not self.launcher.detached:
                self.launcher.kill()
            raise
        finally:
            self.launcher.close()

    def _step(self) -> None:
        for end in self.launcher.ended():
            self._handle_end(self.running.pop(end.task.log), end)
        if time.monotonic() - self.slow_poll_at >= SLOW_POLL_SECONDS:
            self.slow_poll_at = time.monotonic()
            for member in self.members:
                if member.state == "elsewhere" and not is_taken(run_lock(member.directory)):
                    member.state = "waiting"
                    if (run_status := member.job.run_status).settled:
                        member.show_end(run_status)
            for member in self.running.values():
                if is_taken(run_lock(member.directory)):
                    member.state = "running"
                self._check_disk(member)
        for member in self.members:
            self.stopper.check()  # a cluster may take seconds for each
            if member.state != "waiting" or member.task.log in self.running:  # in a launcher's queue
                continue
            if not self._start(member):
                break
        self._check_idle()
        self.display.update()

    def _start(self, member: Member) -> bool:
        """Start the run, unless another command runs it. Return False if the run must wait."""
        if is_taken(run_lock(member.directory)) and not self.launcher.detached:
            member.state = "elsewhere"
            return True
        if not self._has_memory_for(member):
            return False
        if not (member.request_written or self.launcher.in_this_process):
            path = request_file(member.directory)
            remove_unfinished(path.parent, path.name.__eq__)
            write_atomic(path, request_text(member.job), mode=0o600)  # a logger's section may have a secret
            member.request_written = True
        member.log_begin = member.task.log.stat().st_size if member.task.log.exists() else 0
        try:
            if not self.launcher.start(member.task):
                return False
        except OSError as error:
            if error.errno not in FULL:
                raise
            return False  # as if no device were free; _check_disk prints that the disk is full
        except ConfigError as error:
            if not any(item.started for item in self.members):
                raise
            _mark_failed(member, str(error))  # this run can never get its devices, but other runs did
            return True
        member.started += 1
        member.state = "waiting" if self.launcher.queues else "running"
        self.running[member.task.log] = member
        return True

    def _has_memory_for(self, member: Member) -> bool:
        """Return whether the run is likely to fit into memory with those that this command runs now."""
        places = self.memory.get(member.task.cuda, ())
        active = [run for run in self.running.values() if run.task.cuda == member.task.cuda]
        runs = [run.memory for run in (member, *active)]
        if fits(runs, places):
            return True
        if not self.memory_notice_printed:
            self.memory_notice_printed = True
            self.display.print_line(
                f"waiting for memory: with {member.title}, the runs would use about "
                f"{size_text(fullest_place(runs, len(places)))} of {size_text(min(places))}"
            )
        return False

    def _handle_end(self, member: Member, end: End) -> None:
        """Set the run's state from its record, or from how its process ended if the record has no end."""
        self._print_logger_failures(member)
        run_status = member.job.run_status
        for line in run_status.damage:
            self.display.print_line(line)
        if run_status.settled or (run_status.status == "failed" and end.status == 1):
            member.show_end(run_status)
            request_file(member.directory).unlink(missing_ok=True)
        elif end.status == ANOTHER_PROCESS_RUNS_IT:
            member.started -= 1
            member.state = "elsewhere"
        elif end.status == STOPPED_IN_WANDB:
            member.state, member.note = "stopped", run_status.reason or ""
        elif end.status in (1, 2):
            _mark_failed(member, _last_line(end.task.log, member.log_begin) or describe_end(end))
        elif not end.restartable or member.started > self.restarts:
            _mark_failed(member, describe_end(end), begun=True)
        else:
            how = describe_end(end)
            self.display.print_line(f"{member.title}: {how}; it resumes from its last checkpoint")
            member.state = "waiting"

    def _print_logger_failures(self, member: Member) -> None:
        """Print once each line of the log about a failed logger, except W&B, which has `print_unsynced`."""
        for line in () if self.launcher.in_this_process else _lines(member.task.log, member.log_begin):
            title, is_failure, _ = line.partition(LOGGER_FAILED)
            if is_failure and title != Wandb.title and line not in self.logger_failures:
                self.logger_failures.add(line)
                self.display.print_line(f"{member.title}: {line}")

    def _check_idle(self) -> None:
        """Print that other commands use all devices, once for each time that this happens."""
        if self.running or not any(member.state == "waiting" for member in self.members):
            self.idle_since = None
        elif self.idle_since is None:
            self.idle_since = time.monotonic()
        elif time.monotonic() - self.idle_since > IDLE_SECONDS:
            waiting = next(member for member in self.members if member.state == "waiting")
            self.idle_since = math.inf
            reason = self.launcher.why_waiting(waiting.task)
            self.display.print_line(f"no device is free, the runs are waiting: {reason}")

    def _check_disk(self, member: Member) -> None:
        """Print once per occurrence that a run waits for a full disk, which its own log may not show."""
        log = member.directory / LOG
        free = shutil.disk_usage(member.directory.parent).free
        full = "disk is full" in _last_line(log, member.log_begin) or free < LITTLE_SPACE
        if full and not member.waits_for_disk:
            line = f"{member.title}: the disk is full; the run waits for free space in {log.parent}"
            self.display.print_line(line)
        elif member.waits_for_disk and not full:
            self.display.print_line(f"{member.title}: the disk has room again, and the run continues")
        member.waits_for_disk = full

    def _stop(self) -> None:
        """Stop the runs, and wait until they have ended; with a `detached` launcher they continue."""
        if self.launcher.detached and self.running:
            runs = counted(len(self.running), "run")
            self.display.print_line(f"{runs} continue without this command; run it again to follow them")
            return
        if self.launcher.in_this_process:  # the signal has already ended the run
            for member in self.running.values():
                member.state = "stopped"
            return
        self.launcher.stop()
        stopped_at = time.monotonic()
        notice_printed = False
        while self.running and time.monotonic() - stopped_at < SECONDS_UNTIL_KILL:
            if not notice_printed and time.monotonic() - stopped_at > SECONDS_UNTIL_NOTICE:
                notice_printed = True
                self.display.print_line("runs are writing checkpoints; Ctrl-C again ends them at once")
            for end in self.launcher.ended():
                self.running.pop(end.task.log).state = "stopped"
            time.sleep(POLL_SECONDS / 4)
        if self.running:
            self.launcher.kill()


def describe_end(end: End) -> str:
    """Return how the process of a run ended, if the run's record does not name a reason."""
    if end.reason:
        return end.reason
    if end.status == PROCESS_KILLED:
        return f"one of its processes was killed{PERHAPS_MEMORY}"
    if end.status is None:
        return "its process ended with an unknown exit status"
    if end.status < 0:
        name = signal.strsignal(-end.status) or f"signal {-end.status}"
        return f"its process was ended by a signal ({name}){PERHAPS_MEMORY}"
    return f"its process ended with status {end.status}"


def _mark_failed(member: Member, reason: str, begun: bool = False) -> None:
    """Record the failure of a run's process in the run's record; with `begun`, create a missing record."""
    member.state, member.note = "failed", reason
    directory = member.directory
    try:
        manifest = read_manifest(directory)
        if manifest is None and begun:
            manifest = Manifest.model_validate({**member.job.facts, "run": directory.name})
            directory.mkdir(parents=True, exist_ok=True)
        with file_lock(run_lock(directory)):
            if manifest is not None:
                RunRecord(directory, manifest).update(status="failed", reason=reason)
    except (UnreadableError, TakenError, OSError):  # the command's last lines name the reason anyway
        pass


def _last_line(log: Path, begin: int) -> str:
    """Return the last line of a log after byte `begin`, without secrets."""
    lines = _lines(log, begin)
    return without_secrets(lines[-1].removeprefix("poslab: "))[:500] if lines else ""


def _lines(log: Path, begin: int) -> list[str]:
    """Return the lines of a log after byte `begin`."""
    try:
        return log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()
    except OSError:
        return []
