"""What a study does about W&B once its runs are made: what is not there yet is shown, the rest said."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from poslab.config.request import Request
from poslab.config.schema import ConfigError
from poslab.record.files import DamagedError
from poslab.record.manifest import read_manifest
from poslab.report.write import Report
from poslab.study.run.plan import Job
from poslab.tracking import first_place, in_wandb_sweep
from poslab.tracking.login import requested_place, uses_wandb
from poslab.tracking.send.background import error_line
from poslab.tracking.send.offline import VIEW, parts


def check_sweep(requests: Sequence[Request]) -> None:
    """Raises ConfigError where an agent of a W&B sweep, which watches one run, would get several."""
    if in_wandb_sweep() and (len(requests) > 1 or any(each.config.tune.factors for each in requests)):
        raise ConfigError("an agent of a W&B sweep watches one run a command: leave -m and tune= out of it")


def show_runs(jobs: Sequence[Job], console: Console) -> None:
    """Mirror the finished runs that W&B has not: made with logger=local, by another study, sent in part."""
    missing = [job for job in jobs if uses_wandb(job.config.logger) and _lacks(job) and job.settled]
    if not missing:
        return
    from poslab.tracking.send.mirror import mirror  # W&B takes a second to import

    count = len(missing)
    console.print(f"{count} finished run{'s' * (count > 1)} that W&B has not, or not wholly, shown there now")
    for job in track(missing, "to W&B", console=console, disable=not console.is_terminal, transient=True):
        try:
            mirror(job.config.logger, job.card, job.directory)
        except Exception as error:
            console.print(f"{job.title}: W&B failed: {error_line(error)}", style="red")


def _lacks(job: Job) -> bool:
    """Whether a run that is made already is not in W&B, or not all of it, or not in the project named."""
    options, known = job.config.logger, _place(job)
    place = first_place(options, job.directory, known) or {}
    return not known.get("complete") or known != {**known, **requested_place(options), "id": place["id"]}


def show_report(study: str, jobs: Sequence[Job], runs: Path, report: Report, console: Console) -> None:
    """Show a study's report in W&B, where its runs are there."""
    tracked = [job for job in jobs if job.config.study == study and uses_wandb(job.config.logger)]
    if not tracked or in_wandb_sweep():  # an agent watches a run and no report
        return
    from poslab.tracking.send.report import publish

    try:
        place = publish(study, tracked[0].config.logger, runs / study, report.directory)
    except Exception as error:
        console.print(f"the report is not in W&B: {error_line(error)}", style="red")
        return
    if place and place["url"]:
        console.print(f"report in W&B: {place['url']}")


def print_unsynced(jobs: Sequence[Job], console: Console) -> None:
    """One line for all that W&B kept on this machine, and one for the runs that it failed on."""
    failed = [why for job in jobs if (why := _place(job).get("failed"))]
    if failed:
        count = f"{len(failed)} of {len(jobs)} runs"
        console.print(f"W&B failed on {count}; their records are whole: {failed[0]}")
    offline = dict.fromkeys(why for job in jobs if (why := _place(job).get("because")))
    if offline:
        console.print(f"W&B ran offline although there is a login: {', '.join(offline)}")
    part = sum(_place(job).get("mode") == "online" and not _place(job).get("complete") for job in jobs)
    if part and not failed:
        console.print(f"W&B has {part} of {len(jobs)} runs in part; the same command sends the rest")
    left: list[str] = []
    views: list[str] = []
    for folder in dict.fromkeys(job.directory.parent for job in jobs):
        apart = [path for path in folder.glob("[!.]*") if path.name != "wandb"]
        found = [f"{folder}/*/wandb/offline-run-*"] if any(map(_unsent, apart)) else []
        found += [f"{folder}/wandb/offline-run-*"] if _unsent(folder) else []
        left += found
        if found:
            views.append(f"`wandb leet {folder}/{VIEW}`")
    if left:
        console.print(
            f"W&B ran offline; {' or '.join(views)} shows it here; after `wandb login`, from here: "
            f"wandb sync {' '.join(left)}"
        )


def _unsent(directory: Path) -> bool:
    """Whether something below lies there that `wandb sync` has not marked as sent."""
    return any(not list(part.glob("*.synced")) for part in parts(directory))


def _place(job: Job) -> dict[str, Any]:
    try:
        return (read_manifest(job.directory) or {}).get("wandb") or {}
    except DamagedError:
        return {}
