"""Send W&B what it lacks of a study once its runs have ended, and print what was not sent."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from rich.console import Console

from poslab.config.request import Request
from poslab.config.schema import ConfigError
from poslab.config.text import counted
from poslab.loggers import error_line
from poslab.loggers.send.login import in_wandb_sweep, requested_place
from poslab.loggers.send.mirror import mirror_run
from poslab.loggers.send.offline import VIEW, run_id
from poslab.loggers.send.published import is_published
from poslab.loggers.wandb import WandbOptions, wandb_options
from poslab.record.facts import Manifest, WandbPlace
from poslab.study.run.job import Job
from poslab.study.status import sound_manifest

if TYPE_CHECKING:
    from poslab.report.write import Report


def check_variables(requests: Sequence[Request]) -> None:
    """Remove WANDB_NAME from the environment if the command has several runs, and print that it is ignored.

    Raise ConfigError if an agent of a W&B sweep would get several runs, since it follows only one.
    """
    if len(requests) == 1 and not requests[0].config.tune.factors:
        return
    if in_wandb_sweep():
        raise ConfigError("an agent of a W&B sweep follows one run per command: leave -m and tune= out")
    uses_wandb = any(wandb_options(request.config.logger) for request in requests)
    if os.environ.pop("WANDB_NAME", None) and uses_wandb:
        print("poslab: WANDB_NAME is ignored: all runs of the command would have that name", file=sys.stderr)


def show_runs(jobs: Sequence[Job], console: Console) -> None:
    """Send W&B the finished runs that it lacks: those run with logger=local, copied, or sent in part."""
    missing = [
        (job, options)
        for job in jobs
        if (options := wandb_options(job.config.logger)) and _is_missing(job, options) and job.settled
    ]
    if not missing:
        return
    from rich.progress import track

    console.print(f"sending W&B what it lacks of {counted(len(missing), 'finished run')}")
    for job, options in track(
        missing, "to W&B", console=console, disable=not console.is_terminal, transient=True
    ):
        try:
            mirror_run(options, job.config, job.card, job.directory)
        except Exception as error:
            console.print(f"{job.request.title}: W&B failed: {error_line(error)}", style="red")


def _is_missing(job: Job, options: WandbOptions) -> bool:
    """Return whether W&B lacks the run or a part of it, or has it in another project than the configured."""
    known = _place(job)
    expected = known.updated(**requested_place(options), id=run_id(job.directory, known))
    return not known.complete or known != expected


def show_report(study: str, jobs: Sequence[Job], runs: Path, report: "Report", console: Console) -> None:
    """Send a study's report to W&B if one of its runs uses W&B, and print its address."""
    used = (wandb_options(job.config.logger) for job in jobs if job.config.study == study)
    options = next(filter(None, used), None)
    if options is None or in_wandb_sweep():  # an agent follows runs, not reports
        return
    try:
        if is_published(options, runs / study, report.directory):
            return
        from poslab.loggers.send.report import publish  # wandb takes a second to import

        place = publish(study, options, runs / study, report.directory)
    except Exception as error:
        console.print(f"the report could not be sent to W&B: {error_line(error)}", style="red")
        return
    if place["url"]:
        console.print(f"report in W&B: {place['url']}")


def print_unsynced(jobs: Sequence[Job], console: Console) -> None:
    """Print which runs W&B lacks because it failed or was used offline."""
    places = [_place(job) for job in jobs]
    failed = [why for place in places if (why := place.failed)]
    if failed:
        count = f"{len(failed)} of {len(jobs)} runs"
        console.print(f"W&B failed for {count}; their records on this machine are complete: {failed[0]}")
    offline = dict.fromkeys(why for place in places if (why := place.because))
    if offline:
        console.print(f"W&B was used offline, although there is a login: {', '.join(offline)}")
    unsent = {
        f"{quote(str(folder))}/{pattern}": f"`wandb leet {quote(f'{folder}/{VIEW}')}`"
        for folder in dict.fromkeys(job.directory.parent for job in jobs if wandb_options(job.config.logger))
        for pattern in ("*/wandb/offline-run-*", "wandb/offline-run-*")  # runs, and the report
        if any(not list(part.glob("*.synced")) for part in folder.glob(pattern))
    }
    if unsent:
        views = dict.fromkeys(unsent.values())
        console.print(
            f"W&B was used offline; {' or '.join(views)} shows the curves in this terminal; to send them, "
            f"run `wandb login`, then in this folder: wandb sync {' '.join(unsent)}"
        )


def _place(job: Job) -> WandbPlace:
    """Return the place of the run in W&B, without content if there is none."""
    return (sound_manifest(job.directory) or Manifest()).wandb or WandbPlace()
