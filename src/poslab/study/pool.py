"""The runs of a study on a launcher: started as devices get free, followed, started again where lost."""

import math
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from poslab.config.schema import ConfigError
from poslab.config.text import counted, without_secrets
from poslab.record.files import FULL, remove_unfinished, write_atomic
from poslab.record.locks import TakenError, holding, is_taken, run_lock
from poslab.record.manifest import read_manifest
from poslab.record.schema import LOG
from poslab.record.seal import UnreadableError
from poslab.record.writer import RunRecord
from poslab.study.display.study_view import Entry, StudyDisplay
from poslab.study.launch.contract import End, Launcher, Task
from poslab.study.launch.memory import out_of_memory_kills, size_text
from poslab.study.run.budget import estimate
from poslab.study.run.job import Job, Standing
from poslab.study.run.stopping import Stopped, Stopper
from poslab.study.run.worker import (
    ANOTHER_PROCESS_MAKES_IT,
    PRELOAD,
    PROCESS_KILLED,
    STOPPED_IN_WANDB,
    WORKER,
    request_name,
    request_text,
)

SECONDS_UNTIL_NOTICE = 4.0  # after which a study that is stopped says what it still waits for
SECONDS_UNTIL_KILL = 60.0  # that its runs have to write their checkpoints
IDLE_SECONDS = 5.0  # without a free device until that is printed
POLL_SECONDS = 0.2  # between two looks at the study's processes
SLOW_POLL_SECONDS = 1.0  # between two looks at runs of other commands, and at the disk
SECONDS_OF_DYING = 30.0  # that a process with much memory may take to end once the kernel has killed it
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL, PROCESS_KILLED)  # exit statuses
NO_MEMORY = (
    "its process was killed because memory ran out, as it would be again: choose a smaller "
    "trainer.batch_size, a larger trainer.accumulate, a smaller model, or a larger launcher.cores_per_run, "
    "so that fewer runs share the memory"
)
LITTLE_SPACE = 64 * 1024  # a disk with fewer free bytes counts as full


@dataclass
class Member:
    """A run of the study, with the state that the display shows."""

    job: Job
    task: Task
    entry: Entry
    memory: int = 0  # bytes that it is likely to take
    started: int = 0  # processes started for it so far
    request_written: bool = False  # the file that its process reads
    waits_for_disk: bool = False
    log_begin: int = 0  # bytes of its log that earlier processes wrote
    made_before: Standing | None = None  # its state, where there was nothing to make

    @classmethod
    def of(cls, job: Job) -> "Member":
        """A run that has not begun."""
        trainer = job.config.trainer
        task = Task(
            name=job.directory.name,
            command=(*WORKER, str(_request_file(job).resolve())),
            preload=PRELOAD,
            working_directory=Path.cwd(),
            log=job.directory.resolve() / LOG,
            study=job.directory.parent.resolve(),
            cuda=trainer.accelerator == "cuda",
            devices=trainer.devices,
            nodes=trainer.nodes,
        )
        return cls(job, task, Entry(job.request.title, job.directory, "waiting"), estimate(job.size))


class Pool:
    """Makes the runs of a study; a run whose process is lost is started again `restarts` times at most."""

    def __init__(
        self,
        members: Sequence[Member],
        launcher: Launcher,
        restarts: int,
        display: StudyDisplay,
        stopper: Stopper,
        memory: Mapping[bool, Sequence[int]],
    ) -> None:
        """`memory` is what the runs share, where they share it: that of the machine for runs on CPU (False),
        that of each GPU for runs on GPUs (True).
        """
        self.members = members
        self.launcher = launcher
        self.restarts = restarts
        self.display = display
        self.stopper = stopper
        self.memory = memory
        self.memory_notice_printed = False
        self.memory_kills = out_of_memory_kills()
        self.memory_kill_at = -math.inf
        self.running: dict[Path, Member] = {}  # by their logs: two studies may have runs of one name
        self.slow_poll_at = 0.0
        self.idle_since: float | None = None

    def run(self) -> None:
        """Return once every run has ended. Raises Stopped once the runs have closed their records."""
        try:
            with self.stopper.deferred():
                while any(each.entry.state in ("waiting", "running", "elsewhere") for each in self.members):
                    self.stopper.check()
                    self._step()
                    time.sleep(POLL_SECONDS)
        except Stopped:
            self.stopper.disarm()
            self._stop()
            raise
        except BaseException:
            self.launcher.kill()
            raise
        finally:
            self.launcher.close()

    def _step(self) -> None:
        ended = self.launcher.ended()
        if (
            kills := out_of_memory_kills()
        ) != self.memory_kills:  # asked now: a kill is counted before the end
            self.memory_kills, self.memory_kill_at = kills, time.monotonic()
        for end in ended:
            self._handle_end(self.running.pop(end.task.log), self._with_reason(end))
        if time.monotonic() - self.slow_poll_at >= SLOW_POLL_SECONDS:
            self.slow_poll_at = time.monotonic()
            for each in self.members:
                if each.entry.state == "elsewhere" and not is_taken(run_lock(each.job.directory)):
                    each.entry.state = "waiting"
            for each in self.running.values():
                self._check_disk(each)
        for each in self.members:
            self.stopper.check()  # a run in this process has just ended, perhaps by a signal
            if each.entry.state == "waiting" and not self._start(each):
                break
        self._check_idle()
        self.display.update()

    def _with_reason(self, end: End) -> End:
        """The end, with its reason where the kernel has killed the process for lack of memory."""
        recently = time.monotonic() - self.memory_kill_at < SECONDS_OF_DYING
        if end.status not in KILLED or not recently:
            return end
        return replace(end, reason=NO_MEMORY, restartable=False)

    def _start(self, each: Member) -> bool:
        """Start the run, unless it is made or another command makes it; False where no device is free."""
        job = each.job
        if job.settled:  # by another command, meanwhile
            each.entry.state = "done"
            return True
        if is_taken(run_lock(job.directory)) and not self.launcher.detached:
            each.entry.state = "elsewhere"
            return True
        if not self._has_memory_for(each):
            return False
        if not each.request_written:
            path = _request_file(job)
            remove_unfinished(path.parent, path.name.__eq__)
            write_atomic(path, request_text(job))
            each.request_written = True
        each.log_begin = each.task.log.stat().st_size if each.task.log.exists() else 0
        if self.launcher.in_this_process:  # shown before the run begins, which `start` waits for
            each.entry.state = "running"
            self.display.update()
        try:
            if not self.launcher.start(each.task):
                return False
        except OSError as error:
            if error.errno not in FULL:
                raise
            return False  # as if no device were free; _check_disk prints that the disk is full
        except ConfigError as error:
            if not any(member.started for member in self.members):
                raise
            _mark_failed(each, str(error))  # this run will never find its devices, others did
            return True
        each.started += 1
        each.entry.state = "running"
        self.running[each.task.log] = each
        return True

    def _has_memory_for(self, each: Member) -> bool:
        """Whether the run is likely to fit beside those that this command makes now."""
        places = self.memory.get(each.task.cuda, ())
        running = [other.memory for other in self.running.values() if other.task.cuda == each.task.cuda]
        if not running or not places:
            return True
        # Devices are leased evenly, so that one place gets so many of the runs at most.
        together = sorted([each.memory, *running])[-math.ceil((len(running) + 1) / len(places)) :]
        if sum(together) <= min(places):
            return True
        if not self.memory_notice_printed:
            self.memory_notice_printed = True
            self.display.print_line(
                f"{each.entry.title} waits for memory: with the others it is likely to take "
                f"{size_text(sum(together))} of {size_text(min(places))}"
            )
        return False

    def _handle_end(self, each: Member, end: End) -> None:
        """Set the run's state by its record, or by how its process ended where the record does not say."""
        standing = each.job.standing
        for line in standing.damage:
            self.display.print_line(line)
        if standing.settled or (standing.status == "failed" and end.status == 1):
            each.entry.note = standing.reason or ""
            each.entry.state = "done" if standing.status == "done" else "failed"
        elif end.status == ANOTHER_PROCESS_MAKES_IT:
            each.started -= 1
            each.entry.state = "elsewhere"
        elif end.status == STOPPED_IN_WANDB:
            each.entry.state, each.entry.note = "stopped", standing.reason or ""
        elif end.status in (1, 2):
            _mark_failed(each, _last_line(end.task.log, each.log_begin) or describe_end(end))
        elif not end.restartable or each.started > self.restarts:
            _mark_failed(each, describe_end(end))
        else:
            how = describe_end(end)
            self.display.print_line(f"{each.entry.title}: {how}; it goes on from its last checkpoint")
            each.entry.state = "waiting"

    def _check_idle(self) -> None:
        """Print once, each time it happens, that other commands use all devices."""
        if self.running or not any(each.entry.state == "waiting" for each in self.members):
            self.idle_since = None
        elif self.idle_since is None:
            self.idle_since = time.monotonic()
        elif time.monotonic() - self.idle_since > IDLE_SECONDS:
            waiting = next(each for each in self.members if each.entry.state == "waiting")
            if reason := self.launcher.why_waiting(waiting.task):
                self.idle_since = math.inf
                self.display.print_line(f"no device is free, and these runs wait: {reason}")

    def _check_disk(self, each: Member) -> None:
        """Print once, each time it happens, that a run waits for a full disk: its own log may be cut off."""
        log = each.job.directory / LOG
        free = shutil.disk_usage(each.job.directory.parent).free
        full = "disk is full" in _last_line(log, each.log_begin) or free < LITTLE_SPACE
        if full and not each.waits_for_disk:
            line = f"{each.entry.title}: the disk is full; the run waits for room in {log.parent}"
            self.display.print_line(line)
        elif each.waits_for_disk and not full:
            self.display.print_line(f"{each.entry.title}: the disk has room again, and the run goes on")
        each.waits_for_disk = full

    def _stop(self) -> None:
        """Ask the runs to end, and wait until they have; under a `detached` launcher they go on."""
        if self.launcher.detached and self.running:
            runs = counted(len(self.running), "run")
            self.display.print_line(f"{runs} go on without this command; the same command finds them again")
            return
        self.launcher.stop()
        stopped_at = time.monotonic()
        notice_printed = False
        while self.running and time.monotonic() - stopped_at < SECONDS_UNTIL_KILL:
            if not notice_printed and time.monotonic() - stopped_at > SECONDS_UNTIL_NOTICE:
                notice_printed = True
                self.display.print_line("runs are writing their checkpoints; Ctrl-C again ends them at once")
            for end in self.launcher.ended():
                self.running.pop(end.task.log).entry.state = "stopped"
            time.sleep(POLL_SECONDS / 4)
        if self.running:
            self.launcher.kill()


def describe_end(end: End) -> str:
    """How a process ended that left no word in the run's record."""
    if end.reason:
        return end.reason
    if end.status == PROCESS_KILLED:
        return "one of its processes was killed"
    if end.status is None:
        return "its process ended, and how is not known"
    if end.status < 0:
        name = signal.strsignal(-end.status) or f"signal {-end.status}"
        memory = ", perhaps because memory ran out" if -end.status == signal.SIGKILL else ""
        return f"its process was ended by a signal ({name}){memory}"
    return f"its process ended with status {end.status}"


def _request_file(job: Job) -> Path:
    """The file from which the run's process reads what to make."""
    return job.directory.parent / ".launcher" / request_name(job.directory)


def _mark_failed(each: Member, reason: str) -> None:
    """Write the failure of a run's process to the run's record."""
    each.entry.state, each.entry.note = "failed", reason
    directory = each.job.directory
    try:
        manifest = read_manifest(directory)
        with holding(run_lock(directory)):
            if manifest is not None:
                RunRecord(directory, manifest).update(status="failed", reason=reason)
    except (UnreadableError, TakenError, OSError):  # the command's last lines name the reason anyway
        pass


def _last_line(log: Path, begin: int) -> str:
    """The last line of a log from byte `begin` on."""
    try:
        lines = log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return without_secrets(lines[-1].removeprefix("poslab: "))[:500] if lines else ""
