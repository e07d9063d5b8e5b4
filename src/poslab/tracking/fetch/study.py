"""Studies read from W&B into run directories, so that a report of them is as from the machine that made them.

    <cache>/wandb/<entity>/<project>/runs/<study>/<run>/     manifest.json and tables
                                    .../<study>/study.json   of the study's report run

A run keeps its record in W&B under record/. The report run of a study keeps its list as record/study.json,
and under record/runs/<run>/ the records of runs that W&B has no run of: refused before they began, or taken
over from another study.
"""

import re
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track

from poslab.config.text import NAME, plain
from poslab.record.files import DamagedError, write_atomic
from poslab.record.locks import holding
from poslab.record.schema import ENDED, MANIFEST, STUDY_LIST
from poslab.record.study_list import parse_study_list
from poslab.tracking.fetch.account import Account, SourceError, asking
from poslab.tracking.fetch.run_record import (
    Held,
    download,
    held_by,
    keep,
    kept_manifests,
    looked_at,
    md5,
)

TRAIN, REPORT = "train", "report"  # job types
THREADS = 8
QUEUE = 600.0  # seconds to wait for another command that reads the same study

Item = TypeVar("Item")
Result = TypeVar("Result")


def fetch_study(account: Account, study: str, console: Console) -> Path:
    """Make the cache hold a study as W&B does and say on `console` what was found; the folder of studies.

    Raises SourceError, and TakenError where another command reads the same study for long.
    """
    if not NAME.fullmatch(study):
        raise SourceError(f"study={plain(study, 60)!r} is no name of a study", 2)
    root = account.folder / "runs"
    with holding(root / f".{study}.lock", QUEUE):
        for line in _fetched(account, study, root / study, console):
            console.print(f"W&B: {plain(line, 300)}")
    return root


def fetch_run(account: Account, run: Any) -> Path:
    """The directory of one run's record in the cache. Raises SourceError where it has none."""
    held = looked_at(held_by(run), None, {})
    if held.problem:
        raise SourceError(f"W&B: {plain(held.title)} {plain(held.problem)}", 2)
    directory = account.folder / "runs" / str(held.manifest.study) / held.name
    _, problems = keep(held, directory)
    if problems:
        raise SourceError(f"W&B: {plain(problems[0])}", 2)
    return directory


def _fetched(account: Account, study: str, folder: Path, console: Console) -> list[str]:
    """A line for each thing that a reader should know."""
    runs = _listed(account, study)
    held = _at_once(held_by, runs, "looking", console)
    reports = sorted((each for each in held if each.run.job_type == REPORT), key=_created, reverse=True)
    names, lines = _plan(reports[0] if reports else None, study, folder)
    records = [*(each for each in held if each.run.job_type == TRAIN), *_lent(reports)]
    records = _at_once(
        partial(looked_at, study=study, kept=kept_manifests(folder)), records, "reading", console
    )
    chosen, twice = _one_each(each for each in records if not each.problem)
    lines += [f"{each.title} {each.problem}" for each in records if each.problem] + twice
    lines += [
        f"{each.title}: its record says running, W&B says {each.run.state}"
        for each in chosen.values()
        if each.manifest.status == "running" and each.run.state != "running"
    ]
    if not chosen:
        raise SourceError(f"W&B: no record of study={study} in {account.path}: {'; '.join(lines[:3])}", 2)
    folder.mkdir(parents=True, exist_ok=True)
    kept = _at_once(lambda each: keep(each, folder / each.name), list(chosen.values()), "reading", console)
    lines += [line for _, problems in kept for line in problems]
    unreadable = _keep_unreadable(records, [name for name in names if name not in chosen], folder)
    for left in folder.glob("[!.]*/"):
        if left.name not in {*chosen, *unreadable}:
            shutil.rmtree(left)
    if absent := sum(name not in {*chosen, *unreadable} for name in names):
        lines.append(f"{absent} of the {len(names)} runs that the study lists have no record there")
    count = sum(count for count, _ in kept)
    return [*lines, f"{len(chosen)} runs of study={study} in {account.path}; {count} tables were read anew"]


def _listed(account: Account, study: str) -> list[Any]:
    """The runs of a study's group in W&B. Raises SourceError where there are none."""
    kinds = (TRAIN, REPORT)
    with asking(f"the runs of study={study} in {account.path}"):
        try:
            found = account.api.runs(
                account.path, filters={"group": study, "jobType": {"$in": list(kinds)}}, per_page=200
            )
            runs = [run for run in found if run.group == study and run.job_type in kinds]
        except ValueError:
            raise SourceError(f"W&B has no project {account.path}", 2) from None
    if not runs:
        raise SourceError(f"W&B has no run of study={study} in {account.path}", 2)
    return runs


def _plan(report: Held | None, study: str, folder: Path) -> tuple[list[str], list[str]]:
    """The runs that the study lists, kept as its study.json; and a line where there is no list."""
    path, file = folder / STUDY_LIST, None if report is None else report.files.get(STUDY_LIST)
    here = path.read_bytes() if path.exists() else b""
    content = None if file is None else here if file.md5 == md5(here) else download(file)
    if content is None:
        path.unlink(missing_ok=True)
        return [], [f"no report run of the study has its {STUDY_LIST}: runs are listed by name"]
    try:
        listed = parse_study_list(content, path)
        problem = "" if listed.study == study else f"is of study {listed.study!r}"
    except DamagedError:
        problem = "is damaged"
    if problem:
        path.unlink(missing_ok=True)
        return [], [f"{STUDY_LIST} of the report run {problem}: runs are listed by name"]
    if content != here:
        write_atomic(path, content)
    return list(listed.runs), []


def _lent(reports: Sequence[Held]) -> list[Held]:
    """The records that the newest report run keeps for runs that W&B has no run of."""
    files: dict[str, dict[str, Any]] = {}
    for name, file in reports[0].files.items() if reports else ():
        if found := re.fullmatch(r"runs/([^/]+)/([^/]+)", name):
            files.setdefault(found[1], {})[found[2]] = file
    return [Held(reports[0].run, f"{name} (of the report run)", own) for name, own in files.items()]


def _one_each(records: Iterable[Held]) -> tuple[dict[str, Held], list[str]]:
    """Of W&B runs that hold the same run the one that ended last, by directory; a line for each choice."""
    same: dict[str, list[Held]] = {}
    for each in records:
        same.setdefault(str(each.manifest.identity or each.name), []).append(each)
    chosen: dict[str, Held] = {}
    lines = []
    for group in same.values():
        best = max(group, key=_newest)
        chosen[best.name] = best
        if len(group) > 1:
            lines.append(f"{best.name} is there {len(group)} times: {best.title} is used, the newest")
    return chosen, lines


def _newest(held: Held) -> tuple[bool, bool, str, str]:
    """Runs that ended come after others, a run's own record after one that is kept for it."""
    own = held.run.job_type == TRAIN
    return held.manifest.status in ENDED, own, str(held.manifest.finished), _created(held)


def _created(held: Held) -> str:
    return str(held.run.created_at)


def _keep_unreadable(records: Iterable[Held], names: Collection[str], folder: Path) -> set[str]:
    """Manifests that cannot be read, in the places of the listed runs that they are of, for the report."""
    found = set()
    for each in records:
        if each.unreadable:
            identity = each.run.config.get("identity")
            for name in names:
                if identity and name.endswith(f"-{identity}"):
                    shutil.rmtree(folder / name, ignore_errors=True)
                    write_atomic(folder / name / MANIFEST, each.content)
                    found.add(name)
    return found


def _at_once(
    act: Callable[[Item], Result], items: Sequence[Item], name: str, console: Console
) -> list[Result]:
    """What `act` gives for each of the items, some at the same time, with a bar on a terminal."""
    with ThreadPoolExecutor(THREADS) as pool:
        results = pool.map(act, items)
        bar = {"console": console, "transient": True, "disable": not console.is_terminal}
        return list(track(results, f"W&B  {name}", len(items), **bar))  # type: ignore[arg-type]
