"""Run a study: its runs, several of them in a process each, then its report.

Slow modules are imported where they are needed: to see that all runs are finished takes no PyTorch, and SciPy
and Matplotlib are imported only for the report.
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
from poslab.study.display.bar import with_bar
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
from poslab.study.tuning import trials, tuned


def run_study(requests: Sequence[Request], command: str) -> int:
    """Finish the runs that are not yet finished, report on their studies, and return the exit status.

    `command` is the command's line, which the report shows so that its runs can be repeated. The status is 0
    when every run is done, 1 when one failed (the others still run). Raises ConfigError before anything is
    trained when one of the requests is wrong or none can work, and SystemExit with 130 or 143 when the
    command is stopped. With the setting `plan` nothing runs, and the runs are printed.
    """
    console = _console()
    if any(request.config.plan for request in requests):
        from poslab.study.dry_run import print_plan

        return print_plan(requests, command, console)
    with _stoppable(console, command) as stopper:
        check_variables(requests)
        launcher, _ = launcher_of(requests)
        settings = study_options(requests, command)
        runs, reports = settings.runs, settings.reports
        jobs, refused = plan_all(requests, runs, launcher, console)
        settings.check_primaries(jobs)
        members: list[Member] = []
        untuned: list[tuple[Request, str]] = []
        if trial_requests := trials(job.request for job in jobs):
            count, runs_after = counted(len(trial_requests), "trial run"), counted(len(jobs), "run")
            console.print(f"{count} first, to choose the learning rates of {runs_after}")
            trial_jobs, refused_trials = plan_all(trial_requests, runs, launcher, console)
            members = _finish(trial_jobs, refused_trials, settings, console, stopper)
            ready, untuned = tuned([job.request for job in jobs], trial_jobs)
            jobs, refused_tuned = plan_all(ready, runs, launcher, console) if ready else ([], {})
            refused = {**refused, **refused_trials, **refused_tuned}
        first, later = jobs, list[Job]()
        if not launcher.detached:  # else its jobs must be in the queue before this command may end
            first, later = one_of_each_training(jobs)
        members += _finish(first, refused, settings, console, stopper, members, later)
        if later:
            members += _finish(later, refused, settings, console, stopper, members)
        failures = [f"{line} (see {directory})" for directory, line in refused.items()]
        failures += [f"{request.title}: {reason}" for request, reason in untuned]
        # Again where the report is on the last command: another one may have begun meanwhile.
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
    """Return standard error; with `lines`, without anything that changes on a terminal."""
    interactive = False if lines else None
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True, force_interactive=interactive)


@contextmanager
def _stoppable(console: Console, command: str) -> Iterator[Stopper]:
    """Yield the stopper; after a stop, print how to resume the study and exit with the signal's status."""
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
    """Finish the runs that are not yet finished, and return all of them.

    `earlier` are runs that the same command has finished already, and `later` those that it runs afterwards;
    the directories `refused` are of runs that cannot work.
    """
    of_command = [*(member.job for member in earlier), *jobs, *later]
    every = [*(job.directory for job in of_command), *refused]
    if not jobs:
        _list_runs(every, settings)
        return []
    kind, options = launcher_of([job.request for job in jobs])
    launcher = kind(options, len(jobs))
    members = [Member.of(job) for job in jobs]
    for member in members:
        launcher.check(member.task)
    if len(of_command) == 1:
        launcher = launcher.for_one_run(members[0].task)
    sources, trained = take_over(jobs)
    if sources:
        studies = ", ".join(dict.fromkeys(sources))
        console.print(f"runs copied from study {studies}, where they are finished: {len(sources)}")
    if trained:
        console.print(
            f"trained already with another evaluation, and only evaluated: {counted(trained, 'run')}"
        )
    _list_runs(every, settings)
    _mark_finished(members, console)
    waiting = [member for member in members if member.state == "waiting"]
    to_come = [job.directory for job in later if not job.settled]
    if waiting:
        memory = _shared_memory(waiting) if kind.on_this_machine(options) else {}
        inline = launcher.in_this_process  # then a run has a display of its own, and no report follows it
        with (
            announced([*(member.directory for member in waiting), *to_come]),
            StudyDisplay(_console(lines=inline), waiting) as display,
            ExitStack() as live,
        ):
            for study in () if inline else dict.fromkeys(job.config.study for job in jobs):
                live.enter_context(LiveReport(study, settings.runs, settings.reports, display))
            Pool(waiting, launcher, options.restarts, display, stopper, memory).run()
    return members


def _shared_memory(members: Sequence[Member]) -> dict[bool, list[int]]:
    """Return the bytes that runs share: of this machine (False), and of each GPU that runs use (True)."""
    gpus = gpu_memory() if any(member.task.cuda for member in members) else []
    return {False: [machine_memory().bytes], True: [gpu.bytes for gpu in gpus]}


def _list_runs(directories: Sequence[Path], settings: StudyOptions) -> None:
    """Put the runs and the command on the lists of their studies, in the order of the command."""
    for folder in dict.fromkeys(directory.parent for directory in directories):
        names = [directory.name for directory in directories if directory.parent == folder]
        choices = (settings.choices[name].get(folder.name) for name in CHOICES)
        enlist(folder, names, settings.command, *choices)


def _mark_finished(members: Sequence[Member], console: Console) -> None:
    """Mark the runs that are finished, and print how many there are of each kind."""
    outdated = settled = begun = 0
    follow: dict[str, None] = {}
    for member in with_bar(members, "checked", console):
        run_status = member.job.run_status
        outdated += run_status.outdated
        interrupted = run_status.status in ("running", "interrupted")
        begun += interrupted and not is_taken(run_lock(member.job.directory))
        for line in run_status.damage:
            console.print(f"{line}; the run is repeated from its undamaged files", style="red")
        if run_status.settled:
            settled += 1
            member.show_end(run_status)
            follow |= dict.fromkeys(name for name in member.job.config.logger if name != WANDB)
        elif run_status.status == "newer":
            member.show_end(run_status)
    if outdated:
        console.print(
            "trained already, and only evaluated again, since the code of the evaluation has changed: "
            f"{outdated} of {counted(len(members), 'run')}"
        )
    if settled:
        console.print(f"finished already, not repeated: {settled} of {counted(len(members), 'run')}")
    if follow:
        console.print(
            f"finished runs are not sent to {', '.join(follow)}: a logger follows a run while it runs"
        )
    if settled < len(members):  # printed before the first process has imported PyTorch and can show its bar
        folders = dict.fromkeys(f"{member.directory.parent}/" for member in members)
        waiting = {"to start": len(members) - settled - begun, "to resume": begun}
        parts = [f"{counted(runs, 'run')} {verb}" for verb, runs in waiting.items() if runs]
        console.print(f"{' and '.join(parts)}, in {', '.join(folders)}")


def _report(members: Sequence[Member], runs: Path, reports: Path, console: Console) -> None:
    """Write the studies' reports, and send W&B what it lacks."""
    jobs = [member.job for member in members]
    show_runs(jobs, console)
    # Trials of a learning rate have nothing to compare.
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
