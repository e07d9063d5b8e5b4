"""A single run, or a study: several runs, each in a fresh process, then the report of all of them."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from poslab.config import ConfigError, Request
from poslab.job import Job, as_json, plan, run
from poslab.record import read_manifest, write_json
from poslab.report import ReportError, show, write_report
from poslab.terminal import RunDisplay, duration


def single_run(request: Request, runs: Path, reports: Path, command: str) -> int:
    """Make one run in this process, unless it is done already, and report on its study; the exit status.

    `command` is the line that asked for it, kept so that the report can say how to make it again.
    """
    console = Console(stderr=True, highlight=False, markup=False)
    job = plan(request, runs)
    _enlist(job, command)
    if job.done:
        console.print(f"{job.title} is done already and is used again", soft_wrap=True)
    else:
        try:
            run(job, RunDisplay(job.title, console))
        except KeyboardInterrupt:
            console.print("stopped: the same command begins this run again")
            return 130
    return _report([job], runs, reports, console)


def conduct(requests: Sequence[Request], runs: Path, reports: Path, command: str) -> int:
    """Make the runs that are not yet done, report on their studies, and return the exit status.

    0 when every run is done, 1 when one failed (the others are made all the same), 130 when interrupted.
    Raises ConfigError before anything is trained when one of the requests cannot work.
    """
    console = Console(stderr=True, highlight=False, markup=False)
    jobs = _plan_all(requests, runs)
    for job in jobs:
        _enlist(job, command)
    waiting = [job for job in jobs if not job.done]
    if len(waiting) < len(jobs):
        console.print(f"{len(jobs) - len(waiting)} of {len(jobs)} runs are done already and are used again")
    try:
        _make(waiting, runs, console)
    except KeyboardInterrupt:
        console.print("stopped: finished runs are kept, and the same command makes the rest")
        return 130
    return _report(jobs, runs, reports, console)


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


def _enlist(job: Job, command: str) -> None:
    """Put the run on its study's list, in the order in which runs were asked for, with the commands."""
    path = job.directory.parent / "study.json"
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    names = dict.fromkeys([*known.get("runs", []), job.directory.name])
    commands = dict.fromkeys([*known.get("command", "").splitlines(), command])
    listed = {"study": job.config.study, "runs": list(names), "reference": known.get("reference")}
    write_json(path, {**listed, "command": "\n".join(commands)})


def _make(jobs: Sequence[Job], runs: Path, console: Console) -> None:
    started = time.monotonic()
    for number, job in enumerate(jobs):
        title = f"[{number + 1}/{len(jobs)}] {job.title}"
        if number:
            left = (time.monotonic() - started) / number * (len(jobs) - number)
            console.print(f"about {duration(left)} left for {len(jobs) - number} of {len(jobs)} runs")
        command = [sys.executable, "-m", "poslab.job", str(runs), title]
        ended = subprocess.run(command, input=as_json(job.request), text=True, check=False)
        if ended.returncode == 130:
            raise KeyboardInterrupt


def _report(jobs: Sequence[Job], runs: Path, reports: Path, console: Console) -> int:
    for study in dict.fromkeys(job.config.study for job in jobs):
        try:
            show(write_report(study, runs, reports))
        except ReportError as error:
            console.print(f"no report: {error}", soft_wrap=True)
    failed = [job for job in jobs if not job.done]
    _say_how_to_sync(jobs, console)
    for job in failed:
        manifest = read_manifest(job.directory) or {}
        reason = manifest.get("reason") or "its process died"
        console.print(f"not done: {job.title}: {reason} (see {job.directory})", style="red", soft_wrap=True)
    return int(bool(failed))


def _say_how_to_sync(jobs: Sequence[Job], console: Console) -> None:
    """One line for all runs that W&B kept on this machine."""
    places = [(read_manifest(job.directory) or {}).get("wandb") or {} for job in jobs]
    if any(place.get("mode") == "offline" for place in places):
        studies = dict.fromkeys(str(job.directory.parent) for job in jobs)
        folders = " ".join(f"{study}/*/wandb/offline-run-*" for study in studies)
        console.print(f"W&B ran offline; after `wandb login`: wandb sync {folders}", soft_wrap=True)
