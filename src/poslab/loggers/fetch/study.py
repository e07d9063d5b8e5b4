"""Studies downloaded from W&B into run directories, which give the same report as the originals.

    <cache>/wandb/<entity>/<project>/runs/<study>/<run>/     manifest.json and tables
                                    .../<study>/study.json   from the study's report run

A run in W&B has its record under record/. The report run of a study has the study's list in
record/study.json, and under record/runs/<run>/ the records of runs that are not in W&B: those refused before
they began, or copied from another study.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track

from poslab.config.errors import UserError
from poslab.config.text import NAME, plain
from poslab.loggers.fetch.account import Account, asking
from poslab.loggers.fetch.run_record import (
    RemoteRecord,
    download,
    download_record,
    read_record,
    record_files,
)
from poslab.record.files import write_atomic
from poslab.record.locks import file_lock
from poslab.record.manifest import remove_record
from poslab.record.schema import ENDED, STUDY_LIST
from poslab.record.seal import DamagedError
from poslab.record.study_list import WAIT, parse_study_list

TRAIN, REPORT = "train", "report"  # job types
THREADS = 8

Item = TypeVar("Item")
Result = TypeVar("Result")


def fetch_study(account: Account, study: str, console: Console) -> Path:
    """Download a study into the cache, print missing parts on `console`; return the folder of the studies.

    Raise UserError, and TakenError if another command is still downloading the same study after waiting
    WAIT seconds.
    """
    if not NAME.fullmatch(study):
        raise UserError(f"study={plain(study, 60)!r} cannot be the name of a study")
    root = account.folder / "runs"
    with file_lock(root / f".{study}.lock", WAIT):
        for line in _download(account, study, root / study, console):
            console.print(f"W&B: {plain(line, 300)}")
    return root


def fetch_run(account: Account, run: Any) -> Path:
    """Download one run's record; return its directory. Raise UserError if the run has none."""
    record = read_record(run, None)
    if isinstance(record, str):
        raise UserError(f"W&B: {plain(record)}")
    directory = account.folder / "runs" / str(record.manifest.study) / record.name
    if problems := download_record(record, directory):
        raise UserError(f"W&B: {plain(problems[0])}")
    return directory


def _download(account: Account, study: str, folder: Path, console: Console) -> list[str]:
    """Download the study into `folder`; return a line for each missing, damaged or ambiguous record."""
    runs = _listed(account, study)
    report = max((run for run in runs if run.job_type == REPORT), key=_created, default=None)
    report_files = record_files(report) if report else {}
    lines = _plan(report_files, study, folder)
    requests: list[tuple[Any, ...]] = [(run, study) for run in runs if run.job_type == TRAIN]
    requests += _of_report(report, report_files, study)
    read = _at_once(lambda item: read_record(*item), requests, console)
    records = [record for record in read if isinstance(record, RemoteRecord)]
    chosen, choices = _newest_records(records)
    lines += [line for line in read if isinstance(line, str)] + choices
    if not chosen:
        raise UserError(f"W&B: no record of study={study} in {account.path}: {'; '.join(lines[:3])}")
    folder.mkdir(parents=True, exist_ok=True)
    items = [(record, folder / record.name) for record in chosen.values()]
    for problems in _at_once(lambda item: download_record(*item), items, console):
        lines += problems
    for directory in folder.glob("[!.]*/"):
        if directory.name not in chosen:
            remove_record(directory)
    return [*lines, f"{len(chosen)} runs of study={study} in {account.path}"]


def _listed(account: Account, study: str) -> list[Any]:
    """Return the runs of a study in W&B. Raise UserError if there are none."""
    either = [{"group": study}, {"config.study": study}]  # WANDB_RUN_GROUP may have set another group
    filters = {"$or": either, "jobType": {"$in": [TRAIN, REPORT]}}
    with asking(f"the runs of study={study} in {account.path}", f"W&B has no project {account.path}"):
        runs = list(account.api.runs(account.path, filters=filters, per_page=200))
    if not runs:
        raise UserError(f"W&B has no run of study={study} in {account.path}")
    return runs


def _plan(files: Mapping[str, Any], study: str, folder: Path) -> list[str]:
    """Write the study's list, from the report run, into `folder`; return a line if there is none."""
    path = folder / STUDY_LIST
    path.unlink(missing_ok=True)
    content = download(files.get(STUDY_LIST))
    with suppress(DamagedError):
        if content is not None and parse_study_list(content, path).study == study:
            write_atomic(path, content)
            return []
    return [f"no report run of the study has its {STUDY_LIST}: runs are listed by name"]


def _of_report(report: Any, files: Mapping[str, Any], study: str) -> list[tuple[Any, ...]]:
    """Return arguments of `read_record` for the records in the report run: of runs that are not in W&B."""
    runs: dict[str, dict[str, Any]] = {}
    for name, file in files.items():
        if match := re.fullmatch(r"runs/([^/]+)/([^/]+)", name):
            runs.setdefault(match[1], {})[match[2]] = file
    return [(report, study, f"{run} (of the report run)", record) for run, record in runs.items()]


def _newest_records(records: Iterable[RemoteRecord]) -> tuple[dict[str, RemoteRecord], list[str]]:
    """Return the newest W&B run of each record, by directory, and a line for each choice among several."""
    same: dict[str, list[RemoteRecord]] = {}
    for record in sorted(records, key=_newest):
        same.setdefault(str(record.manifest.identity or record.name), []).append(record)
    chosen = {group[-1].name: group[-1] for group in same.values()}
    return chosen, [
        f"{group[-1].name} is in W&B {len(group)} times: {group[-1].title} is used, the newest"
        for group in same.values()
        if len(group) > 1
    ]


def _newest(record: RemoteRecord) -> tuple[bool, bool, str, str]:
    """Return the sort key of records: ended runs last, copies in the report run before the originals."""
    manifest, run = record.manifest, record.run
    return manifest.status in ENDED, run.job_type == TRAIN, str(manifest.finished), _created(run)


def _created(run: Any) -> str:
    return str(run.created_at)


def _at_once(act: Callable[[Item], Result], items: Sequence[Item], console: Console) -> list[Result]:
    """Return the results of `act` on the items, computed in threads, with a progress bar on a terminal."""
    with ThreadPoolExecutor(THREADS) as pool:
        bar = {"console": console, "transient": True, "disable": not console.is_terminal}
        return list(track(pool.map(act, items), "downloading from W&B", len(items), **bar))  # type: ignore[arg-type]
