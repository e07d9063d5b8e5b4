"""A report on disk, and whether it is already what would be written now.

The same records, code and libraries give the same bytes. So a study's command writes nothing where all three
are those of the last time and the report's files are as they were left then, which is remembered in the
user's cache. The command `report` does not look there: it always writes.
"""

import hashlib
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from poslab.config.installation import typed
from poslab.data.directories import planning_directory
from poslab.record.remembered import Remembered
from poslab.record.schema import MANIFEST, STUDY_LIST, TABLE_SUFFIX

PACKAGE = Path(__file__).parents[1]  # of poslab
ROOMS = ("config", "record", "analysis", "report")  # whose code and assets turn records into a report
LIBRARIES = ("jinja2", "markupsafe", "matplotlib", "numpy", "pydantic", "scipy")
REPORTS = 200  # that are remembered


@dataclass(frozen=True)
class Report:
    """A report on disk; `table` holds the rows for a terminal, by column title.

    `notices` are lines for the terminal on where its records are kept.
    """

    directory: Path
    page: Path
    table: tuple[Mapping[str, str], ...]
    summary: str
    title: str
    notices: tuple[str, ...] = ()


def recall_report(inputs: str, folder: Path) -> Report | None:
    """The report in `folder` if it is as it was written from these `inputs`, else None."""
    known = _remembered().get(inputs)
    if known is None or known["files"] != _digests(folder):
        return None
    return Report(folder, folder / known["page"], tuple(known["table"]), known["summary"], known["title"])


def remember_report(report: Report, inputs: str) -> None:
    """Remember a report that was made from these `inputs`, with its files as they are now."""
    value: dict[str, Any] = {
        "page": str(report.page.relative_to(report.directory)),
        "table": [dict(row) for row in report.table],
        "summary": report.summary,
        "title": report.title,
        "files": _digests(report.directory),
    }
    remembered = _remembered()
    remembered.put(inputs, value)
    remembered.save()


def report_inputs(study: str, runs: Path) -> str:
    """The SHA-256 of all that a report of `runs`/`study` is made from: records, code and libraries."""
    digest = hashlib.sha256(f"{study}\0{_environment()}\0".encode())
    for room in ROOMS:
        sources = (path for path in (PACKAGE / room).rglob("*") if path.suffix != ".pyc")
        _add(digest, PACKAGE, sources)
    tables = (path for path in (runs / study).glob("*/*") if path.suffix == TABLE_SUFFIX)
    _add(digest, runs, [*tables, *(runs / study).glob(f"*/{MANIFEST}"), runs / study / STUDY_LIST])
    return digest.hexdigest()


def _add(digest: "hashlib._Hash", root: Path, paths: Iterable[Path]) -> None:
    for path in sorted(path for path in paths if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)}\0{len(content)}\0".encode() + content)


def _environment() -> str:
    versions = [f"{name} {version(name)}" for name in LIBRARIES]
    return "\n".join([platform.python_version(), platform.machine(), typed("report"), *versions])


def _digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file of a report."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _remembered() -> Remembered:
    return Remembered(planning_directory() / "reports.json", REPORTS)
