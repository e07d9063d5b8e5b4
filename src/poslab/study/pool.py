"""The runs of a study on a launcher: started as devices get free, followed, and started again where lost."""

import math
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from poslab.config.schema import ConfigError
from poslab.record.files import FULL, DamagedError, write_atomic
from poslab.record.locks import TakenError, holding, is_taken, run_lock
from poslab.record.manifest import read_manifest
from poslab.record.writer import RunRecord
from poslab.study.display.study_view import Entry, StudyDisplay
from poslab.study.launch.contract import End, Launcher, Task
from poslab.study.run.plan import Job
from poslab.study.run.stopping import Stopped, Stopper
from poslab.study.run.worker import ASKED, FORKS, LOST, TAKEN, WORKER, as_json

SOON = 4.0  # seconds within which runs have closed their records when the study is stopped
GRACE = 60.0  # seconds that one has whose checkpoint is large
IDLE = 5.0  # seconds without a run after which it is said what they wait for
LOOK = 0.2  # seconds between two looks at what the runs do
LOOK_ELSEWHERE = 1.0  # at runs that another command makes, and at the disk
LITTLE = 64 * 1024  # bytes free, fewer than which are taken for a full disk


@dataclass
class Member:
    """A run of the study, and what has become of it."""

    job: Job
    task: Task
    entry: Entry
    started: int = 0  # processes that were started for it
    told: bool = False  # whether the file is written that its process reads
    waits: bool = False  # for room on the disk
    printed: int = 0  # bytes of its log that earlier processes wrote

    @classmethod
    def of(cls, job: Job) -> "Member":
        """A run that has not begun."""
        trainer = job.config.trainer
        task = Task(
            name=job.directory.name,
            command=(*WORKER, str(_request(job).resolve())),
            forks=FORKS,
            working_directory=Path.cwd(),
            log=job.directory.resolve() / "log.txt",
            study=job.directory.parent.resolve(),
            cuda=trainer.accelerator == "cuda",
            devices=trainer.devices,
            nodes=trainer.nodes,
        )
        return cls(job, task, Entry(job.title, job.directory, "waiting"))


class Pool:
    """Makes the runs of a study; `restarts` is how often a run is started again whose process was lost."""

    def __init__(
        self,
        members: Sequence[Member],
        launcher: Launcher,
        restarts: int,
        display: StudyDisplay,
        stopper: Stopper,
    ) -> None:
        self.members = members
        self.launcher = launcher
        self.restarts = restarts
        self.display = display
        self.stopper = stopper
        self.running: dict[Path, Member] = {}  # by their logs: two studies may have runs of one name
        self.looked = 0.0
        self.idle_since: float | None = None

    def run(self) -> None:
        """Until every run has ended. Stopped goes on up once the runs have closed their records."""
        try:
            with self.stopper.deferred():
                while any(each.entry.state in ("waiting", "running", "elsewhere") for each in self.members):
                    self.stopper.check()
                    self._step()
                    time.sleep(LOOK)
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
        for end in self.launcher.ended():
            self._note(self.running.pop(end.task.log), end)
        if time.monotonic() - self.looked >= LOOK_ELSEWHERE:
            self.looked = time.monotonic()
            for each in self.members:
                if each.entry.state == "elsewhere" and not is_taken(run_lock(each.job.directory)):
                    each.entry.state = "waiting"
            for each in self.running.values():
                self._look_at_disk(each)
        for each in self.members:
            if each.entry.state == "waiting" and not self._start(each):
                break
        self._look_at_devices()
        self.display.update()

    def _start(self, each: Member) -> bool:
        """False where no device is free now."""
        job = each.job
        if job.settled:  # by another command, meanwhile
            each.entry.state = "done"
            return True
        if is_taken(run_lock(job.directory)) and not self.launcher.outlives:
            each.entry.state = "elsewhere"
            return True
        if not each.told:
            write_atomic(_request(job), as_json(job))
            each.told = True
        try:
            if not self.launcher.start(each.task):
                return False
        except OSError as error:
            if error.errno not in FULL:
                raise
            return False  # a device is free, the disk is not: what is said of the disk says it
        except ConfigError as error:
            if not any(member.started for member in self.members):
                raise
            _give_up(each, str(error))  # no device will ever be there for this run
            return True
        each.started += 1
        each.printed = each.task.log.stat().st_size if each.task.log.exists() else 0
        each.entry.state = "running"
        self.running[each.task.log] = each
        return True

    def _note(self, each: Member, end: End) -> None:
        """Set what became of a run: by its record, and by its process where the record cannot say."""
        standing = each.job.standing
        for line in standing.damage:
            self.display.say(line)
        if standing.settled or (standing.status == "failed" and end.status == 1):
            each.entry.note = standing.reason or ""
            each.entry.state = "done" if standing.status == "done" else "failed"
        elif end.status == TAKEN:
            each.started -= 1
            each.entry.state = "elsewhere"
        elif end.status == ASKED:
            each.entry.state, each.entry.note = "stopped", standing.reason or ""
        elif end.status in (1, 2):
            _give_up(each, _last_line(end.task.log, each.printed) or _how(end))
        elif not end.again or each.started > self.restarts:
            _give_up(each, _how(end))
        else:
            self.display.say(f"{each.entry.title}: {_how(end)}; it goes on from its last checkpoint")
            each.entry.state = "waiting"

    def _look_at_devices(self) -> None:
        """Say, once a time, that other commands have all devices."""
        if self.running or not any(each.entry.state == "waiting" for each in self.members):
            self.idle_since = None
        elif self.idle_since is None:
            self.idle_since = time.monotonic()
        elif time.monotonic() - self.idle_since > IDLE:
            self.idle_since = math.inf
            self.display.say("no device is free: runs of other commands have them, and these wait")

    def _look_at_disk(self, each: Member) -> None:
        """Say, once a time, that a run waits for room: its own words may have found none either."""
        log = each.job.directory / "log.txt"
        said = _last_line(log, each.printed)
        full = "disk is full" in said or shutil.disk_usage(each.job.directory.parent).free < LITTLE
        if full and not each.waits:
            self.display.say(f"{each.entry.title}: the disk is full: it waits for room in {log.parent}")
        elif each.waits and not full:
            self.display.say(f"{each.entry.title}: the disk has room again, it goes on")
        each.waits = full

    def _stop(self) -> None:
        if self.launcher.outlives and self.running:
            self.display.say(f"{len(self.running)} under way go on; the same command finds them again")
            return
        self.launcher.stop()
        asked = time.monotonic()
        told = False
        while self.running and time.monotonic() - asked < GRACE:
            if not told and time.monotonic() - asked > SOON:
                told = True
                self.display.say("waiting for runs that write their checkpoints; Ctrl-C again ends at once")
            for end in self.launcher.ended():
                self.running.pop(end.task.log).entry.state = "stopped"
            time.sleep(LOOK / 4)
        if self.running:
            self.launcher.kill()


def _request(job: Job) -> Path:
    """The file that tells the run's process what to make."""
    return job.directory.parent / ".launcher" / f"{job.directory.name}.request.json"


def _how(end: End) -> str:
    if end.reason:
        return end.reason
    if end.status == LOST:
        return "one of its processes was killed"
    if end.status is not None and end.status < 0:
        name = signal.strsignal(-end.status) or f"signal {-end.status}"
        memory = ", perhaps for want of memory" if -end.status == signal.SIGKILL else ""
        return f"its process was ended by a signal ({name}){memory}"
    return f"its process ended with status {end.status}"


def _give_up(each: Member, reason: str) -> None:
    """Mark in the record a run whose process could not do it."""
    each.entry.state, each.entry.note = "failed", reason
    directory = each.job.directory
    try:
        manifest = read_manifest(directory)
        with holding(run_lock(directory)):
            if manifest is not None:
                RunRecord(directory, manifest).update(status="failed", reason=reason)
    except (DamagedError, TakenError, OSError):  # the line at the end says it all the same
        pass


def _last_line(log: Path, begin: int) -> str:
    """The last line of a log from byte `begin` on."""
    try:
        lines = log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].removeprefix("poslab: ")[:500] if lines else ""
