"""A run as a separate process: `python -m poslab.study.run.worker FILE` runs the run that FILE describes.

Every launcher except `inline` starts this command. A run with several processes starts the others itself,
unless its launcher has started them.

PyTorch is imported only once a run starts, since the study's command imports this module too.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import NoReturn
from weakref import finalize

from poslab.config.checking import check
from poslab.config.request import Config, Request, Start
from poslab.config.schema import ConfigError
from poslab.record.facts import Manifest
from poslab.record.locks import TakenError
from poslab.record.manifest import read_manifest
from poslab.record.schema import LOG
from poslab.record.seal import read_sealed, sealed
from poslab.record.writer import RunRecord
from poslab.study.display.log import copied_to
from poslab.study.display.run_bar import RunDisplay
from poslab.study.launch.contract import launcher_class
from poslab.study.run.job import Job
from poslab.study.run.plan import plan
from poslab.study.run.processes import exit_with_parent, keep_freed_memory, process_group
from poslab.study.run.stopping import Stopped, Stopper

# Exit statuses besides 0, 1 (the run failed) and 2 (a ConfigError).
PROCESS_KILLED = 71  # one of the run's processes was killed, and the run can resume (EX_OSERR of sysexits.h)
ANOTHER_PROCESS_RUNS_IT = 75  # try again later (EX_TEMPFAIL)
STOPPED_IN_WANDB = 76  # a user stopped the run there, so it must not be started again
OWN_REASON_SECONDS = 5.0  # the time that process 0 has to record an error that all processes of a run have


WORKER = (sys.executable, "-m", "poslab.study.run.worker")  # the command, to be followed by FILE
PRELOAD = "poslab.study.run.preload"  # imports the modules that such a process needs


def request_file(directory: Path) -> Path:
    """Return the file that describes the run in `directory`."""
    return directory.parent / ".launcher" / f"{directory.name}.request.json"


def request_text(job: Job) -> str:
    """Return the content of FILE for a run: everything that another process needs to run it."""
    return sealed(
        {
            **asdict(job.request),
            "config": job.config.model_dump(mode="json"),  # without `auto`
            "identity": job.identity,
            "evaluation": job.code.evaluation,
            "directory": str(job.directory.resolve()),
        }
    )


def main(arguments: Sequence[str]) -> int:
    """Run the run that the file `arguments[-1]` describes, and return the exit status."""
    try:
        return _status(lambda stopper: _run_file(Path(arguments[-1]), stopper))
    except Stopped as stop:
        return stop.status


def run_in_command(job: Job) -> int:
    """Run the job in the user's command, with a copy of its output in the run's log; return the exit status.

    Raise Stopped upon a signal, which concerns the whole command.
    """
    display = RunDisplay(job.request.title, job.directory)

    def work(stopper: Stopper) -> int:
        request = replace(job.request, config=job.config)  # without `auto`
        return _run(_planned_again(request, job.directory, *_identity(job)), display, stopper)

    with copied_to(job.directory / LOG, display):
        return _status(work)


def _status(work: Callable[[Stopper], int]) -> int:
    """Return the exit status of `work`, or that of an error that ends it. Raise Stopped upon a signal."""
    try:
        with Stopper().installed() as stopper:
            keep_freed_memory()
            return work(stopper)
    except ConfigError as error:
        print(f"poslab: {error}", file=sys.stderr)
        return 2
    except TakenError:
        return ANOTHER_PROCESS_RUNS_IT
    except Stopped as stop:
        if stop.requested_by is None:
            raise
        return STOPPED_IN_WANDB


def exit_with(status: int) -> NoReturn:
    """Remove temporary folders and end the process at once: Python would wait for W&B's service."""
    finalize._exitfunc()  # type: ignore[attr-defined]
    with suppress(OSError):  # a log file on a full disk
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _identity(job: Job) -> tuple[str, str]:
    """Return the job's identity and the fingerprint of the evaluation's code, which is not part of it."""
    return job.identity, job.code.evaluation


def _planned_again(request: Request, directory: Path, identity: str, evaluation: str) -> Job:
    """Return the job as this process plans it now, to run in `directory`.

    Raise ConfigError if code or data have changed: this process may have imported older code, and would
    record code that it did not run.
    """
    # The planned directory could have another name, which depends on the option names; a run has only one.
    job = replace(plan(request, directory.parent.parent), directory=directory)
    if _identity(job) != (identity, evaluation):
        raise ConfigError("code or data have changed since the study began: run the same command again")
    return job


def _run(job: Job, display: RunDisplay, stopper: Stopper) -> int:
    from poslab.study.run.execute import run

    return int(run(job, display, stopper).status != "done")


def _run_file(path: Path, stopper: Stopper) -> int:
    """Run the run of FILE. Raise ConfigError if FILE is missing, or if the code or the data have changed."""
    from poslab.study.run.execute import RunExecutor

    exit_with_parent()
    try:
        content = read_sealed(path)
    except FileNotFoundError:
        raise ConfigError(f"{path} is missing: run the study's command again") from None
    request = Request(
        check(Config, content["config"], ""),
        content["pos"],
        content["attention"],
        tuple(content["non_default_settings"]),
        content["distinguishing_label"],
        None if content["start"] is None else Start(**content["start"]),
    )
    command = [*WORKER, sys.argv[-1]]
    launcher, _ = launcher_class(request.config.launcher)
    stopper.step_seconds = launcher.step_seconds
    job = _planned_again(request, Path(content["directory"]), content["identity"], content["evaluation"])

    def on_lost(number: int, status: int) -> None:
        try:
            if status > 0:
                time.sleep(OWN_REASON_SECONDS)
                manifest = read_manifest(job.directory) or Manifest(**job.facts)
                reason = f"process {number} of the run ended with status {status}; see its log"
                RunRecord(job.directory, manifest).update(status="failed", reason=reason)
        finally:  # the main thread might wait for the lost process forever
            os._exit(PROCESS_KILLED if status < 0 else 1)

    with process_group(request.config.trainer, launcher.ranks, command, on_lost) as number:
        if number:
            RunExecutor(job, RunDisplay(job.request.title, quiet=True), stopper).share()
            return 0
        return _run(job, RunDisplay(job.request.title, job.directory), stopper)


if __name__ == "__main__":
    exit_with(main(sys.argv))
