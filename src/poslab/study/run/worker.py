"""A run as a process of its own: `python -m poslab.study.run.worker FILE` makes the run that FILE describes.

So every launcher starts every run, and a run that is several processes starts the others.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from poslab.config.request import Config, Request
from poslab.config.schema import ConfigError, check
from poslab.model.gpt import build
from poslab.record.locks import TakenError
from poslab.record.manifest import read_manifest
from poslab.record.writer import RunRecord
from poslab.study.display.progress_file import ProgressFile
from poslab.study.display.run_bar import RunDisplay
from poslab.study.launch.forks import serve
from poslab.study.run.make import Making, run
from poslab.study.run.plan import Job, plan
from poslab.study.run.processes import exit_with_parent, process_group
from poslab.study.run.stopping import Stopped, Stopper

LOST = 71  # the exit status where one of the run's processes was killed: it can go on, by sysexits.h
ASKED = 76  # the exit status where somebody stopped the run in W&B: it is not to be started again
TAKEN = 75  # the exit status where another process makes the run: try again later, by sysexits.h
PATIENCE_OF_SLURM = 20.0  # seconds for a step, of the 30 until Slurm's SIGKILL


WORKER = (sys.executable, "-m", "poslab.study.run.worker")  # makes the run of the file that is put behind it
FORKS = (*WORKER, "--forks")  # forks such processes, on the socket whose descriptor is put behind it


def as_json(job: Job) -> str:
    """What another process needs to make the run: FILE of `python -m poslab.study.run.worker FILE`."""
    return json.dumps(
        {
            "config": job.config.model_dump(mode="json"),  # without `auto`: what was planned is what is made
            "pos": job.request.pos,
            "attention": job.request.attention,
            "non_default_settings": job.request.non_default_settings,
            "distinguishing_label": job.request.distinguishing_label,
            "identity": job.identity,
            "directory": str(job.directory.resolve()),
        }
    )


def main(arguments: Sequence[str]) -> int:
    """Make the run that the file `arguments[-1]` describes; the exit status."""
    try:
        with Stopper().installed() as stopper:
            exit_with_parent()
            return _make(json.loads(Path(arguments[-1]).read_text()), stopper)
    except ConfigError as error:
        print(f"poslab: {error}", file=sys.stderr)
        return 2
    except TakenError:
        return TAKEN
    except Stopped as stop:
        return ASKED if stop.requested_by else stop.status


def _make(told: Mapping[str, Any], stopper: Stopper) -> int:
    request = Request(
        check(Config, told["config"], ""),
        told["pos"],
        told["attention"],
        tuple(told["non_default_settings"]),
        told["distinguishing_label"],
    )
    command = [*WORKER, sys.argv[-1]]
    slurm = request.config.launcher.get("name") == "slurm"
    directory = Path(told["directory"])
    # The directory as it was told: two names of one run must not become two runs.
    job = replace(plan(request, directory.parent.parent), directory=directory)
    # Where W&B puts what it has to send later: in the user's home, if it is not told.
    os.environ.setdefault("WANDB_DATA_DIR", str(directory / "wandb"))
    if slurm:
        stopper.patience = PATIENCE_OF_SLURM
    if job.identity != told["identity"]:
        raise ConfigError("code or data changed since the study began: give the command again")

    def on_lost(number: int, status: int) -> None:
        try:
            if status > 0:
                manifest = read_manifest(job.directory) or {}
                reason = f"process {number} of the run ended with status {status}; see its log"
                RunRecord(job.directory, manifest).update(status="failed", reason=reason)
        finally:  # at once: the main thread may wait for the lost one for ever
            os._exit(LOST if status < 0 else 1)

    with process_group(request.config.trainer, slurm, command, on_lost) as number:
        display = RunDisplay(job.title, progress=ProgressFile(job.directory))
        if number:
            Making(job, display, stopper).share(build(job.config, job.corpus.vocabulary))
            return 0
        return int(run(job, display, stopper)["status"] != "done")


def import_once_and_fork(descriptor: int) -> None:
    """Import all that runs need, and fork a process for each run that the launcher asks for."""
    import gc

    import poslab.training.loop  # noqa: F401 - Lightning, which every run imports before it trains

    gc.collect()
    gc.freeze()  # what is there now is never collected, so its pages stay shared between the runs
    serve(descriptor, main)


if __name__ == "__main__":
    if sys.argv[1] == "--forks":
        import_once_and_fork(int(sys.argv[2]))
        os._exit(0)
    status = main(sys.argv)
    with suppress(OSError):  # a log file on a full disk
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)  # nothing is left to do, and W&B's service would be waited for
