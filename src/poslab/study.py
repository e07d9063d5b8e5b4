"""A single run, or a study: several runs, each in a fresh process, then the report of all of them."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from poslab.config import ConfigError, Request
from poslab.job import Job, as_json, plan, run
from poslab.record import read_manifest, write_json
from poslab.report import ReportError, show, write_report
from poslab.terminal import RunDisplay, duration

GRACE = 20  # seconds that a run has to close its record when the study is stopped


def single_run(request: Request, runs: Path, reports: Path, command: str) -> int:
    """Make one run in this process, unless it is made already, and report on its study; the exit status.

    `command` is the line that asked for it, kept so that the report can say how to make it again.
    """
    console = _console()
    job = plan(request, runs)
    _enlist([job], command)
    if job.settled:
        console.print(f"{job.title} is made already and is used again")
    else:
        run(job, RunDisplay(job.title, console))
    return _report([job], runs, reports, console)


def conduct(requests: Sequence[Request], runs: Path, reports: Path, command: str) -> int:
    """Make the runs that are not yet made, report on their studies, and return the exit status.

    0 when every run is done, 1 when one failed (the others are made all the same). Raises ConfigError before
    anything is trained when one of the requests cannot work; KeyboardInterrupt and SystemExit go on up once
    the run that was being made has closed its record.
    """
    console = _console()
    jobs = _plan_all(requests, runs)
    _enlist(jobs, command)
    waiting = [job for job in jobs if not job.settled]
    if len(waiting) < len(jobs):
        console.print(f"{len(jobs) - len(waiting)} of {len(jobs)} runs are made already and are used again")
    if waiting:  # said before the first process has imported PyTorch and can show its bar
        console.print(f"{len(waiting)} runs to train, one after another; {waiting[0].directory.parent}/")
    with _sigterm_as_exit():
        _make(waiting, runs, console)
    return _report(jobs, runs, reports, console)


def _console() -> Console:
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def _plan_all(requests: Sequence[Request], runs: Path) -> list[Job]:
    jobs = []
    for request in requests:
        try:
            jobs.append(plan(request, runs))
        except ConfigError as error:
            if len(requests) == 1:
                raise
            raise ConfigError(f"{request.pos} / {request.attention}: {error}") from None
    return list({job.directory: job for job in jobs}.values())  # the same run asked for twice is made once


def _enlist(jobs: Sequence[Job], command: str) -> None:
    """Put runs on their studies' lists, in the order in which they were asked for, with the commands."""
    for study in dict.fromkeys(job.directory.parent for job in jobs):
        path = study / "study.json"
        known = _known(path)
        # A run that was asked for but never begun, perhaps of older code, is not waited for any more.
        begun = [name for name in known.get("runs", []) if (study / name / "manifest.json").exists()]
        asked = [job.directory.name for job in jobs if job.directory.parent == study]
        names = list(dict.fromkeys([*begun, *asked]))
        commands = list(dict.fromkeys([*known.get("commands", []), command]))
        write_json(path, {"study": study.name, "runs": names, "reference": None, "commands": commands})


def _known(path: Path) -> dict[str, Any]:
    try:
        known = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):  # a damaged list is made anew: it holds no result
        return {}
    return known if isinstance(known, dict) else {}


def _make(jobs: Sequence[Job], runs: Path, console: Console) -> None:
    started = time.monotonic()
    for number, job in enumerate(jobs):
        title = f"[{number + 1}/{len(jobs)}] {job.title}"
        if number:
            left = (time.monotonic() - started) / number * (len(jobs) - number)
            console.print(f"about {duration(left)} left for {len(jobs) - number} of {len(jobs)} runs")
        command = [sys.executable, "-m", "poslab.job", str(runs), title, job.identity]
        if _run_child(command, as_json(job.request)) == 130:
            raise KeyboardInterrupt


def _run_child(command: Sequence[str], text: str) -> int:
    """The exit status of a process that is given `text`; it is stopped, gently first, if we are stopped."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    try:
        assert child.stdin is not None
        with child.stdin as pipe:
            pipe.write(text)
        return child.wait()
    except BrokenPipeError:  # it ended before it had read all
        return child.wait()
    except BaseException as stop:
        if isinstance(stop, SystemExit):  # Ctrl-C reaches the child by itself, a signal to us alone does not
            child.terminate()
        try:
            child.wait(GRACE)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            child.kill()
            child.wait()
        raise


@contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _report(jobs: Sequence[Job], runs: Path, reports: Path, console: Console) -> int:
    for study in dict.fromkeys(job.config.study for job in jobs):
        try:
            show(write_report(study, runs, reports))
        except ReportError as error:
            console.print(f"no report: {error}")
    _say_how_to_sync(jobs, console)
    failed = [job for job in jobs if job.status != "done"]
    for job in failed:
        manifest = read_manifest(job.directory) or {}
        reason = manifest.get("reason") or "its process ended without a word"
        console.print(f"not done: {job.title}: {reason} (see {job.directory})", style="red")
    return int(bool(failed))


def _say_how_to_sync(jobs: Sequence[Job], console: Console) -> None:
    """One line for all runs that W&B kept on this machine."""
    places = [(read_manifest(job.directory) or {}).get("wandb") or {} for job in jobs]
    if any(place.get("mode") == "offline" for place in places):
        studies = dict.fromkeys(str(job.directory.parent) for job in jobs)
        folders = " ".join(f"{study}/*/wandb/offline-run-*" for study in studies)
        console.print(f"W&B ran offline; after `wandb login`: wandb sync {folders}")
