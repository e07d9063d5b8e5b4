"""A study: its runs, each in a fresh process, then the report of all of them."""

import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from typing import Any

from rich.console import Console

from poslab.attention import PairError
from poslab.config import ConfigError, Request
from poslab.job import TAKEN, as_json
from poslab.launch import End, Launcher, LauncherOptions, Task, launcher_class
from poslab.lock import TakenError, alone, is_taken, run_lock
from poslab.plan import Job, plan, refuse, title
from poslab.record import (
    DamagedError,
    RunRecord,
    read_manifest,
    read_sealed,
    write_atomic,
    write_sealed,
)
from poslab.report import ReportError, show, write_report
from poslab.stopping import Stopped, Stopper
from poslab.view import Entry, StudyDisplay

GRACE = 4.0  # seconds that runs have to close their records when the study is stopped
LOOK = 0.2  # seconds between two looks at what the runs do
LOOK_ELSEWHERE = 1.0  # at runs that another command makes
LITTLE = 64 * 1024  # bytes free, fewer than which are taken for a full disk
QUEUE = 600.0  # seconds to wait for a file that another command writes


@dataclass
class _Making:
    """A run of the study, and what has become of it."""

    job: Job
    entry: Entry
    started: int = 0  # processes that were started for it
    waits: bool = False  # for room on the disk


@dataclass
class _Plan:
    """The runs of a command: those that can be made, and a line for each that cannot."""

    jobs: list[Job] = field(default_factory=list)
    refused: dict[Path, str] = field(default_factory=dict)


def conduct(requests: Sequence[Request], runs: Path, reports: Path, command: str) -> int:
    """Make the runs that are not yet made, report on their studies, and return the exit status.

    `command` is the line that asked for them, kept so that the report can say how to make them again. The
    status is 0 when every run is done, 1 when one failed (the others are made all the same). Raises
    ConfigError before anything is trained when one of the requests is not in order or none can work, and
    SystemExit with 130 or 143 when the command is stopped.
    """
    console = _console()
    with _stoppable(console, command):
        kind, options = _one_launcher(requests)
        planned = _plan_all(requests, runs)
        jobs = planned.jobs
        launcher = kind(options, len(jobs))
        _enlist([*(job.directory for job in jobs), *planned.refused], command)
        made = [_Making(job, Entry(job.title, job.directory, "waiting")) for job in jobs]
        _tell_what_is_there(made, console)
        waiting = [each for each in made if each.entry.state == "waiting"]
        if waiting:
            with StudyDisplay(console, [each.entry for each in waiting]) as display:
                _make(waiting, launcher, options.restarts, runs, display)
        return _report(jobs, planned.refused, runs, reports, console)


def _console() -> Console:
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def _stoppable(console: Console, command: str) -> Iterator[None]:
    """Where the program is stopped inside, say how to go on, and leave with the signal's status."""
    try:
        with Stopper().installed():
            yield
    except Stopped as stop:
        console.print(f"stopped; finished runs are kept, and the same command goes on: {command}")
        sys.stdout.flush()
        raise SystemExit(stop.status) from None


def _one_launcher(requests: Sequence[Request]) -> tuple[type[Launcher], LauncherOptions]:
    if any(request.config.launcher != requests[0].config.launcher for request in requests):
        raise ConfigError("launcher: a study has one launcher, it cannot be swept; give one command for each")
    return launcher_class(requests[0].config.launcher)


def _plan_all(requests: Sequence[Request], runs: Path) -> _Plan:
    """Raises ConfigError for wrong settings; a pair that cannot work is no reason to drop the others."""
    planned = _Plan()
    pairs: dict[int, PairError] = {}
    jobs = []
    for number, request in enumerate(requests):
        try:
            jobs.append(plan(request, runs))
        except PairError as error:
            pairs[number] = error
        except ConfigError as error:
            if len(requests) == 1:
                raise
            raise ConfigError(f"{request.pos} / {request.attention}: {error}") from None
    if not jobs:
        raise next(iter(pairs.values()))
    planned.jobs = list({job.directory: job for job in jobs}.values())  # the same run asked for twice
    for number, pair in pairs.items():
        request = requests[number]
        planned.refused[refuse(request, runs, pair)] = f"{title(request)}: {pair}"
    return planned


def _enlist(directories: Sequence[Path], command: str) -> None:
    """Put runs on their studies' lists, in the order in which they were asked for, with the commands."""
    for study in dict.fromkeys(directory.parent for directory in directories):
        path = study / "study.json"
        with alone(study / ".study.lock", QUEUE):
            known = _known(path)
            # A run that was asked for but never begun, perhaps of older code, is not waited for any more.
            begun = [name for name in known.get("runs", []) if (study / name / "manifest.json").exists()]
            asked = [directory.name for directory in directories if directory.parent == study]
            names = list(dict.fromkeys([*begun, *asked]))
            commands = list(dict.fromkeys([*known.get("commands", []), command]))
            told = {"study": study.name, "runs": names, "reference": None, "commands": commands}
            write_sealed(path, told)


def _known(path: Path) -> dict[str, Any]:
    try:
        return read_sealed(path)
    except FileNotFoundError:
        return {}
    except DamagedError as error:  # it holds no result
        print(f"poslab: {error} and is made again from the runs", file=sys.stderr)
        return {"runs": sorted(manifest.parent.name for manifest in path.parent.glob("*/manifest.json"))}


def _tell_what_is_there(made: Sequence[_Making], console: Console) -> None:
    """Mark the runs that are made already, and say what was found."""
    for each in made:
        standing = each.job.standing
        for line in standing.damage:
            console.print(f"{line}: the run is made again from what is left", style="red")
        if standing.settled:
            each.entry.state = "done"
    settled = sum(each.entry.state == "done" for each in made)
    if settled:
        console.print(f"{settled} of {len(made)} runs are made already and are used again")
    if settled < len(made):  # said before the first process has imported PyTorch and can show its bar
        console.print(f"{len(made) - settled} runs to train; {made[0].job.directory.parent}/")


def _make(
    made: Sequence[_Making], launcher: Launcher, restarts: int, runs: Path, display: StudyDisplay
) -> None:
    """Until every run has ended. Stopped goes on up once the runs have closed their records."""
    running: dict[str, _Making] = {}
    looked = 0.0
    try:
        while any(each.entry.state in ("waiting", "running", "elsewhere") for each in made):
            for end in launcher.ended():
                _note_end(running.pop(end.task.name), end, restarts, display)
            if time.monotonic() - looked >= LOOK_ELSEWHERE:
                looked = time.monotonic()
                for each in made:
                    if each.entry.state == "elsewhere" and not is_taken(run_lock(each.job.directory)):
                        each.entry.state = "waiting"
                _tell_of_full_disk(list(running.values()), display)
            for each in made:
                if each.entry.state == "waiting" and not _start(each, launcher, runs, running):
                    break
            display.update()
            time.sleep(LOOK)
    except Stopped:
        if launcher.outlives and running:
            display.say(f"{len(running)} runs go on without this command, which would pick them up again")
        else:
            launcher.stop()
            _await_ends(launcher, running, display)
        raise
    except BaseException:
        launcher.kill()
        raise
    finally:
        launcher.close()


def _start(each: _Making, launcher: Launcher, runs: Path, running: dict[str, _Making]) -> bool:
    """False where no device is free now."""
    job = each.job
    if job.settled:  # by another command, meanwhile
        each.entry.state = "done"
        return True
    if is_taken(run_lock(job.directory)) and not launcher.outlives:
        each.entry.state = "elsewhere"
        return True
    told = job.directory.parent / ".launcher" / f"{job.directory.name}.request.json"
    write_atomic(told, as_json(job, runs.resolve(), job.title))
    trainer = job.config.trainer
    task = Task(
        name=job.directory.name,
        command=(sys.executable, "-m", "poslab.job", str(told.resolve())),
        working_directory=Path.cwd(),
        log=job.directory.resolve() / "log.txt",
        study=job.directory.parent.resolve(),
        cuda=trainer.accelerator == "cuda",
        devices=trainer.devices,
        nodes=trainer.nodes,
    )
    if not launcher.start(task):
        return False
    each.started += 1
    each.entry.state = "running"
    running[task.name] = each
    return True


def _note_end(each: _Making, end: End, restarts: int, display: StudyDisplay) -> None:
    """Set what became of a run by its record, and by how its process ended where the record cannot say."""
    standing = each.job.standing
    for line in standing.damage:
        display.say(line)
    if standing.settled or (standing.status == "failed" and end.status == 1):
        each.entry.note = standing.reason or ""
        each.entry.state = "done" if standing.status == "done" else "failed"
    elif end.status == TAKEN:
        each.entry.state = "elsewhere"
    elif end.status in (1, 2):
        _give_up(each, _last_line(end.task.log) or f"its process ended with status {end.status}")
    elif not end.again or each.started > restarts:
        _give_up(each, _how(end))
    else:
        display.say(f"{each.entry.title}: {_how(end)}; it goes on from its last checkpoint")
        each.entry.state = "waiting"


def _how(end: End) -> str:
    if end.reason:
        return end.reason
    if end.status is not None and end.status < 0:
        name = Signals(-end.status).name
        return f"its process was killed by {name}" + (
            ", perhaps for want of memory" if name == "SIGKILL" else ""
        )
    return f"its process ended with status {end.status}"


def _give_up(each: _Making, reason: str) -> None:
    """Mark in the record a run whose process could not do it."""
    each.entry.state, each.entry.note = "failed", reason
    directory = each.job.directory
    try:
        manifest = read_manifest(directory)
        with alone(run_lock(directory)):
            if manifest is not None:
                RunRecord(directory, manifest).update(status="failed", reason=reason)
    except (DamagedError, TakenError):  # the line at the end says it all the same
        pass


def _tell_of_full_disk(running: Sequence[_Making], display: StudyDisplay) -> None:
    """Say, once a time, what runs wait for: their own words may have found no room either."""
    for each in running:
        log = each.job.directory / "log.txt"
        full = shutil.disk_usage(each.job.directory.parent).free < LITTLE or "disk is full" in _last_line(log)
        if full and not each.waits:
            display.say(f"{each.entry.title}: the disk is full: it waits for room in {log.parent}")
        elif each.waits and not full:
            display.say(f"{each.entry.title}: the disk has room again, it goes on")
        each.waits = full


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].removeprefix("poslab: ")[:500] if lines else ""


def _await_ends(launcher: Launcher, running: dict[str, _Making], display: StudyDisplay) -> None:
    until = time.monotonic() + GRACE
    while running and time.monotonic() < until:
        for end in launcher.ended():
            each = running.pop(end.task.name)
            each.entry.state = "stopped"
        time.sleep(LOOK / 4)
    if running:
        launcher.kill()


def _report(
    jobs: Sequence[Job], refused: dict[Path, str], runs: Path, reports: Path, console: Console
) -> int:
    for study in dict.fromkeys(job.config.study for job in jobs):
        try:
            with alone(runs / study / ".report.lock", QUEUE):
                report = write_report(study, runs, reports)
            show(report)
        except ReportError as error:
            console.print(f"no report: {error}")
    _say_how_to_sync(jobs, console)
    failed = {f"not done: {line} (see {directory})": None for directory, line in refused.items()}
    for job in jobs:
        standing = job.standing
        if standing.status != "done" or standing.damage:
            reason = "; ".join(standing.damage) or standing.reason or "its process ended without a word"
            failed[f"not done: {job.title}: {reason} (see {job.directory})"] = None
    for line in failed:
        console.print(line, style="red")
    return int(bool(failed))


def _say_how_to_sync(jobs: Iterable[Job], console: Console) -> None:
    """One line for all runs that W&B kept on this machine."""
    offline = [job for job in jobs if _place(job).get("mode") == "offline"]
    if offline:
        studies = dict.fromkeys(str(job.directory.parent) for job in offline)
        folders = " ".join(f"{study}/*/wandb/offline-run-*" for study in studies)
        console.print(f"W&B ran offline; after `wandb login`: wandb sync {folders}")


def _place(job: Job) -> dict[str, Any]:
    try:
        return (read_manifest(job.directory) or {}).get("wandb") or {}
    except DamagedError:
        return {}
