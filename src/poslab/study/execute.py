"""Run a study: first its runs, each in a separate process unless there is only one, then its report.

Slow modules are imported where they are needed: if all runs are finished, the command imports no PyTorch, and
SciPy and Matplotlib are imported only for the report.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console

from poslab.config.request import WANDB, Request
from poslab.config.text import counted
from poslab.record.active_runs import announced
from poslab.record.locks import file_lock, is_taken, run_lock
from poslab.record.reader import ReportError
from poslab.record.schema import ERROR
from poslab.record.study_list import UNNAMED, WAIT, enlist
from poslab.report.render.terminal import show
from poslab.study.display.live_report import LiveReport
from poslab.study.display.study_view import StudyDisplay
from poslab.study.launch.devices import gpu_memory
from poslab.study.launch.machine import machine_memory
from poslab.study.planning import launcher_of, plan_all
from poslab.study.pool import Member, Pool
from poslab.study.reuse import one_of_each_training, take_over
from poslab.study.run.job import Job
from poslab.study.run.stopping import Stopped, Stopper
from poslab.study.study_options import CHOICES, StudyOptions, study_options
from poslab.study.sync import check_variables, print_unsynced, show_report, show_runs
from poslab.study.tuning import chosen_rates, trials, tuned


def run_study(requests: Sequence[Request], command: str) -> int:
    """Finish the runs that are not yet finished, report on their studies, and return the exit status.

    `command` is the command line, which the report shows so that its runs can be repeated. The status is 0 if
    every run is done, and 1 if one failed (the others still run). With the setting `plan`, print the runs and
    start none. Raise ConfigError before anything is trained if a request is wrong or none can work, and
    SystemExit with 130 or 143 if the command is stopped.
    """
    console = _console()
    if any(request.config.plan for request in requests):
        from poslab.study.dry_run import print_plan

        return print_plan(requests, command)
    with _stoppable(console, command) as stopper:
        check_variables(requests)
        launcher, _ = launcher_of(requests)
        settings = study_options(requests, command)
        runs, reports = settings.runs, settings.reports
        jobs, refused = plan_all(requests, runs, launcher)
        settings.check_primaries(jobs)
        members: list[Member] = []
        untuned: list[tuple[Request, str]] = []
        if trial_requests := trials(job.request for job in jobs):
            count, runs_after = counted(len(trial_requests), "trial run"), counted(len(jobs), "run")
            console.print(f"{count} first, to choose the learning rates of {runs_after}")
            trial_jobs, refused_trials = plan_all(trial_requests, runs, launcher)
            members = _finish(trial_jobs, refused_trials, settings, console, stopper)
            ready, untuned = tuned([job.request for job in jobs], trial_jobs)
            for line in chosen_rates(request for request in ready if request.config.tune.factors):
                console.print(line)
            jobs, refused_tuned = plan_all(ready, runs, launcher) if ready else ([], {})
            refused = {**refused, **refused_trials, **refused_tuned}
        first, later = jobs, list[Job]()
        if not launcher.detached:  # otherwise all jobs must be in the queue before this command ends
            first, later = one_of_each_training(jobs)
        members += _finish(first, refused, settings, console, stopper, members, later)
        if later:
            members += _finish(later, refused, settings, console, stopper, members)
        failures = [f"{line} (see {directory})" for directory, line in refused.items()]
        failures += [f"{request.title}: {reason}" for request, reason in untuned]
        # Without a study's name, the report is on the latest command: another one may have begun since.
        every = (*(member.directory for member in members), *refused)
        _list_runs([directory for directory in every if directory.parent.name == UNNAMED], settings)
        _report(members, runs, reports, console)
        for member in members:
            if member.state != "done":
                cause = member.directory / ERROR  # the traceback
                where = cause if cause.exists() else member.directory
                failures.append(f"{member.title}: {member.note or 'no reason is known'} (see {where})")
        for line in dict.fromkeys(failures):
            console.print(f"not done: {line}", style="red")
        return int(bool(failures))


def _console(lines: bool = False) -> Console:
    """Return a console on standard error; with `lines`, it prints only lines, even on a terminal."""
    interactive = False if lines else None
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True, force_interactive=interactive)


@contextmanager
def _stoppable(console: Console, command: str) -> Iterator[Stopper]:
    """Yield a stopper; after a stop, print how to resume the study, and exit with the signal's status."""
    try:
        with Stopper().installed() as stopper:
            yield stopper
    except Stopped as stop:
        console.print(f"stopped; finished runs stay, and the same command resumes the others: {command}")
        sys.stdout.flush()
        raise SystemExit(stop.status) from None


def _finish(
    jobs: Sequence[Job],
    refused: Iterable[Path],
    settings: StudyOptions,
    console: Console,
    stopper: Stopper,
    earlier: Sequence[Member] = (),
    later: Sequence[Job] = (),
) -> list[Member]:
    """Finish the runs of `jobs` that are not yet finished, and return all runs of `jobs`.

    `earlier` are runs that this command has already finished, and `later` those that it runs afterwards.
    `refused` are the directories of runs that cannot work.
    """
    all_jobs = [*(member.job for member in earlier), *jobs, *later]
    directories = [*(job.directory for job in all_jobs), *refused]
    if not jobs:
        _list_runs(directories, settings)
        return []
    kind, options = launcher_of([job.request for job in jobs])
    launcher = kind(options, len(jobs))
    members = [Member.of(job) for job in jobs]
    for member in members:
        launcher.check(member.task)
    if len(all_jobs) == 1:
        launcher = launcher.for_one_run(members[0].task)
    sources, trained = take_over(jobs)
    if sources:
        studies = ", ".join(dict.fromkeys(sources))
        console.print(f"finished runs copied from study {studies}: {len(sources)}")
    if trained:
        console.print(
            f"already trained for another evaluation, only evaluated now: {counted(trained, 'run')}"
        )
    _list_runs(directories, settings)
    _mark_finished(members, console)
    waiting = [member for member in members if member.state == "waiting"]
    upcoming = [job.directory for job in later if not job.settled]
    if waiting:
        memory = _shared_memory(waiting) if kind.on_this_machine(options) else {}
        inline = launcher.in_this_process  # the run then shows its own progress, and there is no live report
        with (
            announced([*(member.directory for member in waiting), *upcoming]),
            StudyDisplay(_console(lines=inline), waiting) as display,
            ExitStack() as live,
        ):
            for study in () if inline else dict.fromkeys(job.config.study for job in jobs):
                live.enter_context(LiveReport(study, settings.runs, settings.reports, display))
            Pool(waiting, launcher, options.restarts, display, stopper, memory).run()
    return members


def _shared_memory(members: Sequence[Member]) -> dict[bool, list[int]]:
    """Return the bytes that runs share: of this machine (False), and of each GPU if runs use any (True)."""
    gpus = gpu_memory() if any(member.task.cuda for member in members) else []
    return {False: [machine_memory().bytes], True: [gpu.bytes for gpu in gpus]}


def _list_runs(directories: Sequence[Path], settings: StudyOptions) -> None:
    """Add the runs, in the order of the command, and the command itself to the lists of their studies."""
    for folder in dict.fromkeys(directory.parent for directory in directories):
        names = [directory.name for directory in directories if directory.parent == folder]
        choices = (settings.choices[name].get(folder.name) for name in CHOICES)
        enlist(folder, names, settings.command, *choices)


def _mark_finished(members: Sequence[Member], console: Console) -> None:
    """Mark the finished runs, and print how many runs are finished, are to start, and are to resume."""
    outdated = settled = begun = 0
    loggers: dict[str, None] = {}
    for member in members:
        run_status = member.job.run_status
        outdated += run_status.outdated
        interrupted = run_status.status in ("running", "interrupted")
        begun += interrupted and not is_taken(run_lock(member.job.directory))
        for line in run_status.damage:
            console.print(f"{line}; the run is repeated, using its undamaged files", style="red")
        if run_status.settled:
            settled += 1
            member.show_end(run_status)
            loggers |= dict.fromkeys(name for name in member.job.config.logger if name != WANDB)
    if outdated:
        console.print(
            "already trained, only evaluated again, since the code of the evaluation has changed: "
            f"{outdated} of {counted(len(members), 'run')}"
        )
    if settled:
        console.print(f"already finished, not repeated: {settled} of {counted(len(members), 'run')}")
    if loggers:
        console.print(
            f"finished runs are not sent to {', '.join(loggers)}: a logger only gets a run while it runs"
        )
    if settled < len(members):  # printed early: the first process takes seconds before it shows anything
        folders = dict.fromkeys(f"{member.directory.parent}/" for member in members)
        waiting = {"to start": len(members) - settled - begun, "to resume": begun}
        parts = [f"{counted(runs, 'run')} {verb}" for verb, runs in waiting.items() if runs]
        console.print(f"{' and '.join(parts)}, in {', '.join(folders)}")


def _report(members: Sequence[Member], runs: Path, reports: Path, console: Console) -> None:
    """Write the studies' reports, and send W&B what it lacks of the runs and reports."""
    jobs = [member.job for member in members]
    show_runs(jobs, console)
    # Trials of a learning rate have no comparison to report.
    compared = dict.fromkeys(job.config.study for job in jobs if job.config.part == "comparison")
    for study in compared:
        try:
            with file_lock(runs / study / ".report.lock", WAIT):
                with console.status(f"writing {reports / study}/"):
                    from poslab.report.write import write_report  # imports Matplotlib: runs do not need it

                    report = write_report(study, runs, reports)
                if len(compared) > 1:
                    print(f"study {study}")
                show(report)
                show_report(study, jobs, runs, report, console)
        except ReportError as error:
            console.print(f"no report: {error}")
    print_unsynced(jobs, console)
