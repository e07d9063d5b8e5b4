"""A study: its runs, where there are several each in a process of its own, then the report of all of them.

What only some commands need is imported where it is needed: to see that all runs are made takes no PyTorch,
and SciPy and Matplotlib are imported for the report only.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from poslab.config.request import Request
from poslab.config.schema import ConfigError, PairError
from poslab.config.text import counted
from poslab.record.locks import holding
from poslab.record.reader import ReportError
from poslab.record.study_list import enlist
from poslab.record.under_way import announced
from poslab.report.render.terminal import show
from poslab.study.display.bar import with_bar
from poslab.study.display.live_report import LiveReport
from poslab.study.display.study_view import StudyDisplay
from poslab.study.launch.contract import Launcher, LauncherOptions, launcher_class
from poslab.study.launch.memory import gpu_memory, machine_memory
from poslab.study.pool import Member, Pool
from poslab.study.reuse import copy_from_other_study, recorded_elsewhere
from poslab.study.run.budget import BudgetError, warning
from poslab.study.run.job import Job
from poslab.study.run.plan import plan
from poslab.study.run.preparation import Preparation
from poslab.study.run.refusals import forget_refusal, record_refusal
from poslab.study.run.stopping import Stopped, Stopper
from poslab.study.study_options import StudyOptions, study_options
from poslab.study.sync import check_variables, print_unsynced, show_report, show_runs
from poslab.study.tuning import trials, tuned

LOCK_SECONDS = 600.0  # to wait for a file that another command is writing


@dataclass
class Plan:
    """The runs of a command: those that can be made, and a line for each that cannot."""

    jobs: list[Job] = field(default_factory=list)
    refused: dict[Path, str] = field(default_factory=dict)


def run_study(requests: Sequence[Request], command: str) -> int:
    """Make the runs that are not yet made, report on their studies, and return the exit status.

    `command` is the command's line, which the report shows, so that its runs can be made again. The status is
    0 when every run is done, 1 when one failed (the others are made all the same). Raises ConfigError before
    anything is trained when one of the requests is wrong or none can work, and SystemExit with 130 or 143
    when the command is stopped.
    """
    console = _console()
    with _stoppable(console, command) as stopper:
        check_variables(requests)
        launcher, _ = _launcher(requests)
        settings = study_options(requests, command)
        runs, reports = settings.runs, settings.reports
        planned = plan_all(requests, runs, launcher, console)
        settings.check_primaries(planned.jobs)
        trial_members: list[Member] = []
        untuned: list[tuple[Request, str]] = []
        if trial_requests := trials(job.request for job in planned.jobs):
            count, runs_after = counted(len(trial_requests), "trial run"), counted(len(planned.jobs), "run")
            console.print(f"{count} first, to choose the learning rates of {runs_after}")
            planned_trials = plan_all(trial_requests, runs, launcher, console)
            trial_members = _make(planned_trials, settings, console, stopper)
            requests = [job.request for job in planned.jobs]
            ready, untuned = tuned(requests, [each.job for each in trial_members])
            tuned_jobs = plan_all(ready, runs, launcher, console).jobs if ready else []
            planned = Plan(tuned_jobs, planned.refused)
        members = [*trial_members, *_make(planned, settings, console, stopper, trial_members)]
        failures = [f"{line} (see {directory})" for directory, line in planned.refused.items()]
        failures += [f"{request.title}: {reason}" for request, reason in untuned]
        failures += _report(members, runs, reports, console)
        for line in dict.fromkeys(failures):
            console.print(f"not done: {line}", style="red")
        return int(bool(failures))


def _console(lines: bool = False) -> Console:
    """Standard error; where `lines`, without anything that changes on a terminal."""
    interactive = False if lines else None
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True, force_interactive=interactive)


@contextmanager
def _stoppable(console: Console, command: str) -> Iterator[Stopper]:
    """Where the command is stopped inside, print how to go on, and exit with the signal's status."""
    try:
        with Stopper().installed() as stopper:
            yield stopper
    except Stopped as stop:
        console.print(f"stopped; finished runs are kept, and the same command goes on: {command}")
        sys.stdout.flush()
        raise SystemExit(stop.status) from None


def _launcher(requests: Sequence[Request]) -> tuple[type[Launcher], LauncherOptions]:
    if any(request.config.launcher != requests[0].config.launcher for request in requests):
        raise ConfigError("launcher: a study has one launcher, it cannot be swept; give one command for each")
    return launcher_class(requests[0].config.launcher)


def plan_all(requests: Sequence[Request], runs: Path, launcher: type[Launcher], console: Console) -> Plan:
    """Check all requests before any run is made; of the same run asked for twice there is one job.

    Raises ConfigError where a setting is wrong. What cannot work is refused, be it a scheme and an attention
    that do not go together or a run that cannot fit, and the other requests are planned; PairError or
    BudgetError is raised only where none is left.
    """
    here = launcher.here(_launcher(requests)[1])
    jobs: dict[tuple[str, str], Job] = {}  # by study and identity, since names of options may differ
    refused: list[tuple[Request, PairError | BudgetError]] = []
    preparation = Preparation()
    for request in with_bar(requests, "planned", console):
        try:
            job = plan(request, runs, here, preparation)
            job.check_disk()
            jobs.setdefault((job.config.study, job.identity), job)
        except (PairError, BudgetError) as error:
            refused.append((request, error))
        except ConfigError as error:
            if len(requests) == 1:
                raise
            raise ConfigError(f"{request.pos} / {request.attention}: {error}") from None
    if not jobs:
        raise refused[0][1]
    lines = {
        record_refusal(request, runs, error, here): f"{request.title}: {error}" for request, error in refused
    }
    return Plan(list(jobs.values()), lines)


def _make(
    planned: Plan,
    settings: StudyOptions,
    console: Console,
    stopper: Stopper,
    made_before: Sequence[Member] = (),
) -> list[Member]:
    """Make the runs that are not yet made; all planned runs, as they are then.

    `made_before` are runs that the same command has made already.
    """
    before = [each.job.directory for each in made_before]
    if not planned.jobs:
        _list_runs([*before, *planned.refused], settings)
        return []
    kind, options = _launcher([job.request for job in planned.jobs])
    launcher = kind(options, len(planned.jobs))
    members = [Member.of(job) for job in planned.jobs]
    for each in members:
        launcher.check(each.task)
    if len(members) == 1 and not made_before:
        launcher = launcher.for_one_run(members[0].task)
    for each in members:
        forget_refusal(each.job.request, each.job.directory.parent.parent)
    recorded = recorded_elsewhere(planned.jobs)
    sources = [study for job in planned.jobs if (study := copy_from_other_study(job, recorded)) is not None]
    if sources:
        studies = ", ".join(dict.fromkeys(sources))
        console.print(f"runs copied from study {studies}, which has made them already: {len(sources)}")
    _list_runs([*before, *(job.directory for job in planned.jobs), *planned.refused], settings)
    _mark_made(members, console)
    waiting = [each for each in members if each.entry.state == "waiting"]
    if waiting:
        memory = _shared_memory(waiting, console) if kind.here(options) else {}
        here = launcher.in_this_process  # then a run shows itself, and nothing follows it meanwhile
        with (
            announced(each.job.directory for each in waiting),
            StudyDisplay(_console(lines=here), [each.entry for each in waiting]) as display,
            nullcontext() if here else _live_reports(members, settings, display),
        ):
            Pool(waiting, launcher, options.restarts, display, stopper, memory).run()
    return members


@contextmanager
def _live_reports(members: Sequence[Member], settings: StudyOptions, display: StudyDisplay) -> Iterator[None]:
    """Inside, the report of each study is written again and again while its runs are made."""
    studies = dict.fromkeys(each.job.config.study for each in members)
    live = [LiveReport(study, settings.runs, settings.reports, display) for study in studies]
    display.followers += [report.update for report in live]
    try:
        yield
    except BaseException:
        for report in live:
            report.stop()
        raise
    for report in live:  # before the report forks processes, which should inherit no thread's work
        report.wait()


def _shared_memory(members: Sequence[Member], console: Console) -> dict[bool, list[int]]:
    """What runs on this machine share: its memory (False), and that of each GPU where runs use any (True).

    Prints which of them would fit if other programs used less.
    """
    for size, job in {each.job.size: each.job for each in reversed(members)}.items():
        if line := warning(size):
            console.print(f"{job.request.title}: {line}", style="yellow")
    gpus = [gpu.bytes for gpu in gpu_memory()] if any(each.task.cuda for each in members) else []
    return {False: [machine_memory().bytes], True: gpus}


def _list_runs(directories: Sequence[Path], settings: StudyOptions) -> None:
    """Put runs on their studies' lists, in the order of the command, with the command itself."""
    for folder in dict.fromkeys(directory.parent for directory in directories):
        names = [directory.name for directory in directories if directory.parent == folder]
        facts = (
            each.get(folder.name) for each in (settings.references, settings.questions, settings.primaries)
        )
        enlist(folder, names, settings.command, *facts)


def _mark_made(members: Sequence[Member], console: Console) -> None:
    """Mark the runs that are made already, and print how many there are of each kind."""
    outdated = 0
    for each in with_bar(members, "checked", console):
        standing = each.job.standing
        outdated += standing.outdated
        for line in standing.damage:
            console.print(f"{line}; the run is made again from its undamaged files", style="red")
        if standing.settled:
            each.entry.state, each.made_before = "done", standing
        elif standing.status == "newer":
            each.entry.state = "failed"
    if outdated:
        console.print(
            f"{outdated} of {counted(len(members), 'run')} are trained already and only evaluated again, "
            "since the code that evaluates has changed"
        )
    settled = sum(each.entry.state == "done" for each in members)
    if settled:
        console.print(f"{settled} of {counted(len(members), 'run')} are made already, and are not made again")
    if settled < len(members):  # printed before the first process has imported PyTorch and can show its bar
        folders = dict.fromkeys(f"{each.job.directory.parent}/" for each in members)
        console.print(f"{counted(len(members) - settled, 'run')} to make, in {', '.join(folders)}")


def _report(members: Sequence[Member], runs: Path, reports: Path, console: Console) -> list[str]:
    """Write the studies' reports, and send to W&B what is not there; a line for each run that is not done."""
    jobs = [each.job for each in members]
    show_runs(jobs, console)
    # Runs that only try a learning rate have nothing to compare.
    compared = dict.fromkeys(job.config.study for job in jobs if job.config.part == "comparison")
    if compared:
        from poslab.report.write import write_report  # with Matplotlib, which a study's runs do without
    for study in compared:
        try:
            with holding(runs / study / ".report.lock", LOCK_SECONDS):
                report = write_report(study, runs, reports)
                if len(compared) > 1:
                    print(f"study {study}")
                show(report)
                show_report(study, jobs, runs, report, console)
        except ReportError as error:
            console.print(f"no report: {error}")
    print_unsynced(jobs, console)
    return [line for each in members if (line := _failure(each)) is not None]


def _failure(each: Member) -> str | None:
    """Why a run is not done, in a line; None where it is."""
    job, standing = each.job, each.made_before or each.job.standing
    if standing.status == "diverged" and job.config.part == "tuning":
        return None  # a result: its learning rate is too high
    if standing.status == "done" and not standing.damage:
        return None
    reason = "; ".join(standing.damage) or standing.reason or each.entry.note or "its process gave no reason"
    return f"{job.request.title}: {reason} (see {job.directory})"
