"""A study: its runs, each in a fresh process, then the report of all of them."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from poslab.config.request import Request
from poslab.config.schema import ConfigError
from poslab.data.corpus import Corpus
from poslab.model.attention import PairError
from poslab.record.files import DamagedError, read_sealed, write_sealed
from poslab.record.locks import holding
from poslab.record.losses import ReportError
from poslab.record.manifest import read_manifest
from poslab.report.render.terminal import show
from poslab.report.write import write_report
from poslab.study.display.study_view import StudyDisplay
from poslab.study.launch.contract import Launcher, LauncherOptions, launcher_class
from poslab.study.pool import Member, Pool
from poslab.study.reuse import copy_from_other_study
from poslab.study.run.plan import Job, forget_refusal, plan, record_refusal, title
from poslab.study.run.stopping import Stopped, Stopper
from poslab.study.sync import check_sweep, print_unsynced, show_report, show_runs
from poslab.study.tuning import trials, tuned

QUEUE = 600.0  # seconds to wait for a file that another command writes


@dataclass
class _Plan:
    """The runs of a command: those that can be made, and a line for each that cannot."""

    jobs: list[Job] = field(default_factory=list)
    refused: dict[Path, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Told:
    """What a command says of its studies, by their names."""

    command: str
    references: Mapping[str, str]
    questions: Mapping[str, str]


def run_study(requests: Sequence[Request], runs: Path, reports: Path, command: str) -> int:
    """Make the runs that are not yet made, report on their studies, and return the exit status.

    `command` is the line that asked for them, kept so that the report can say how to make them again. The
    status is 0 when every run is done, 1 when one failed (the others are made all the same). Raises
    ConfigError before anything is trained when one of the requests is not in order or none can work, and
    SystemExit with 130 or 143 when the command is stopped.
    """
    console = _console()
    with _stoppable(console, command) as stopper:
        check_sweep(requests)
        launcher, _ = _one_launcher(requests)
        told = _Told(command, _references(requests, runs), _questions(requests))
        planned = _plan_all(requests, runs, launcher)
        refused = planned.refused
        tried: list[Member] = []
        untuned: list[tuple[Request, str]] = []
        if first := trials(job.request for job in planned.jobs):
            console.print(f"{len(first)} trials choose the learning rates of {len(planned.jobs)} runs")
            tried = _make(_plan_all(first, runs, launcher), told, console, stopper)
            ready, untuned = tuned([job.request for job in planned.jobs], [each.job for each in tried])
            planned = _plan_all(ready, runs, launcher) if ready else _Plan()
        planned.refused = refused
        members = [*tried, *_make(planned, told, console, stopper)]
        failed = [f"{line} (see {directory})" for directory, line in refused.items()]
        failed += [f"{title(request)}: {why}" for request, why in untuned]
        return _report(members, failed, runs, reports, console)


def _make(planned: _Plan, told: _Told, console: Console, stopper: Stopper) -> list[Member]:
    """Make the runs that are not yet made."""
    if not planned.jobs:
        _enlist(list(planned.refused), told)
        return []
    kind, options = _one_launcher([job.request for job in planned.jobs])
    launcher = kind(options, len(planned.jobs))
    members = [Member.of(job) for job in planned.jobs]
    for each in members:
        launcher.check(each.task)
        forget_refusal(each.job.request, each.job.directory.parent.parent)
    taken = [study for job in planned.jobs if (study := copy_from_other_study(job)) is not None]
    if taken:
        console.print(f"{len(taken)} runs are taken over from {', '.join(dict.fromkeys(taken))}")
    _enlist([*(job.directory for job in planned.jobs), *planned.refused], told)
    _tell_what_is_there(members, console)
    waiting = [each for each in members if each.entry.state == "waiting"]
    if waiting:
        with StudyDisplay(console, [each.entry for each in waiting]) as display:
            Pool(waiting, launcher, options.restarts, display, stopper).run()
    return members


def _console() -> Console:
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def _stoppable(console: Console, command: str) -> Iterator[Stopper]:
    """Where the program is stopped inside, say how to go on, and leave with the signal's status."""
    try:
        with Stopper().installed() as stopper:
            yield stopper
    except Stopped as stop:
        console.print(f"stopped; finished runs are kept, and the same command goes on: {command}")
        sys.stdout.flush()
        raise SystemExit(stop.status) from None


def _one_launcher(requests: Sequence[Request]) -> tuple[type[Launcher], LauncherOptions]:
    if any(request.config.launcher != requests[0].config.launcher for request in requests):
        raise ConfigError("launcher: a study has one launcher, it cannot be swept; give one command for each")
    return launcher_class(requests[0].config.launcher)


def _questions(requests: Sequence[Request]) -> dict[str, str]:
    """What each study is to answer, where it says so."""
    return {each.config.study: each.config.question for each in requests if each.config.question}


def _references(requests: Sequence[Request], runs: Path) -> dict[str, str]:
    """The arm that each study's others are compared with, where one is named. Raises ConfigError."""
    found: dict[str, str] = {}
    for request in requests:
        study, wanted = request.config.study, request.config.reference
        if wanted is None:
            continue
        if found.setdefault(study, wanted) != wanted:
            raise ConfigError(f"reference={found[study]},{wanted}: a study has one reference")
    for study, wanted in found.items():
        arms = {(each.pos, each.attention) for each in requests if each.config.study == study}
        arms |= {(each["pos"], each["attention"]) for each in _manifests(runs / study)}
        names = dict.fromkeys(
            name for pos, attention in sorted(arms) for name in (pos, f"{pos} / {attention}")
        )
        # What else an arm differs in comes behind a comma in its label.
        if not any(wanted == name or wanted.startswith(f"{name}, ") for name in names):
            raise ConfigError(
                f"reference={wanted[:60]} is no arm of study={study}; there are {', '.join(names)}"
            )
    return found


def _manifests(study: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(study.glob("[!.]*/manifest.json")):
        with suppress(DamagedError):
            yield read_manifest(path.parent) or {}


def _plan_all(requests: Sequence[Request], runs: Path, launcher: type[Launcher]) -> _Plan:
    """Raises ConfigError for wrong settings; a pair that cannot work is no reason to drop the others."""
    here = launcher.here(_one_launcher(requests)[1])
    planned = _Plan()
    pairs: dict[int, PairError] = {}
    jobs: list[Job] = []
    corpora: dict[str, Corpus] = {}
    for number, request in enumerate(requests):
        try:
            jobs.append(plan(request, runs, here, corpora))
        except PairError as error:
            pairs[number] = error
        except ConfigError as error:
            if len(requests) == 1:
                raise
            raise ConfigError(f"{request.pos} / {request.attention}: {error}") from None
    if not jobs:
        raise next(iter(pairs.values()))
    known: dict[tuple[str, str], Job] = {}
    for job in jobs:  # the same run may be asked for twice, perhaps by two names
        known.setdefault((job.config.study, job.identity), job)
    planned.jobs = list(known.values())
    for number, pair in pairs.items():
        request = requests[number]
        planned.refused[record_refusal(request, runs, pair)] = f"{title(request)}: {pair}"
    return planned


def _enlist(directories: Sequence[Path], told: _Told) -> None:
    """Put runs on their studies' lists, in the order in which they were asked for, with the commands."""
    for study in dict.fromkeys(directory.parent for directory in directories):
        path = study / "study.json"
        with holding(study / ".study.lock", QUEUE):
            known = _known(path)
            # A run that was asked for but never begun, perhaps of older code, is not waited for any more.
            begun = [name for name in known.get("runs", []) if (study / name / "manifest.json").exists()]
            asked = [directory.name for directory in directories if directory.parent == study]
            names = list(dict.fromkeys([*begun, *asked]))
            list_of = {
                "study": study.name,
                "runs": names,
                "reference": told.references.get(study.name, known.get("reference")),
                "question": told.questions.get(study.name, known.get("question")),
                "commands": list(dict.fromkeys([*known.get("commands", []), told.command])),
            }
            write_sealed(path, list_of)


def _known(path: Path) -> dict[str, Any]:
    try:
        return read_sealed(path)
    except FileNotFoundError:
        return {}
    except DamagedError as error:  # it holds no result
        print(f"poslab: {error} and is made again from the runs", file=sys.stderr)
        return {"runs": sorted(manifest.parent.name for manifest in path.parent.glob("[!.]*/manifest.json"))}


def _tell_what_is_there(members: Sequence[Member], console: Console) -> None:
    """Mark the runs that are made already, and say what was found."""
    for each in members:
        standing = each.job.standing
        for line in standing.damage:
            console.print(f"{line}: the run is made again from what is left", style="red")
        if standing.settled:
            each.entry.state = "done"
    outdated = sum(each.job.standing.outdated for each in members)
    if outdated:
        console.print(
            f"{outdated} of {len(members)} runs are trained already and only evaluated again: "
            "the code that evaluates has changed"
        )
    settled = sum(each.entry.state == "done" for each in members)
    if settled:
        console.print(f"{settled} of {len(members)} runs are made already and are used again")
    if settled < len(members):  # said before the first process has imported PyTorch and can show its bar
        count = len(members) - settled
        folders = dict.fromkeys(f"{each.job.directory.parent}/" for each in members)
        console.print(f"{count} run{'s' * (count > 1)} to train; {', '.join(folders)}")


def _report(
    members: Sequence[Member], failed: Sequence[str], runs: Path, reports: Path, console: Console
) -> int:
    jobs = [each.job for each in members]
    show_runs(jobs, console)
    # Runs that only try a learning rate have nothing to compare.
    for study in dict.fromkeys(job.config.study for job in jobs if job.config.part == "comparison"):
        try:
            with holding(runs / study / ".report.lock", QUEUE):
                report = write_report(study, runs, reports)
                show(report)
                show_report(study, jobs, runs, report, console)
        except ReportError as error:
            console.print(f"no report: {error}")
    print_unsynced(jobs, console)
    lines = [f"not done: {line}" for line in failed]
    for each in members:
        job, standing = each.job, each.job.standing
        if standing.status == "diverged" and job.config.part == "tuning":
            continue  # which says that its learning rate is too high: an answer
        if standing.status != "done" or standing.damage:
            told = "; ".join(standing.damage) or standing.reason or each.entry.note
            reason = told or "its process ended without a word"
            lines.append(f"not done: {job.title}: {reason} (see {job.directory})")
    for line in dict.fromkeys(lines):
        console.print(line, style="red")
    return int(bool(lines))
