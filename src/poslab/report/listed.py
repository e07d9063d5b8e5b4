"""The list of all reports in a folder, as one page beside them: question, picture, date and state."""

import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from poslab.record.files import write_atomic
from poslab.record.seal import UnreadableError, read_sealed

TEMPLATES = Path(__file__).parent / "render" / "templates"
THUMBNAILS = ("sliding_loss_by_length", "loss_by_length", "validation_loss")  # the first that a report has


LIST = "index.html"
LIVE = "live"  # the folder of the pages of studies that are being made
STATE = ".json"  # ends the name of the file there that says how far a study is
LATEST = 60.0  # seconds without a word from it after which a study is not called running


@dataclass(frozen=True)
class Running:
    """A study that is being made, as the list shows it."""

    study: str
    title: str
    line: str  # how far it is
    updated: float  # seconds since 1970


@dataclass(frozen=True)
class Listed:
    """A report as the list shows it."""

    folder: str
    title: str  # its question, or its name
    finished: str  # how many of its runs
    runs: str
    date: str  # on which its last run ended
    thumbnail: str | None


def write_list(reports: Path) -> Path:
    """Write `reports`/index.html."""
    page = reports / LIST
    write_atomic(page, list_page(reports))
    return page


def list_page(reports: Path) -> str:
    """A page of every report in the folder, the latest first, under the studies that are being made."""
    # Here, since a finished study that is asked for again needs none of it.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    listed = [one for path in sorted(reports.glob("*/facts.csv")) if (one := _read(path.parent)) is not None]
    listed.sort(key=lambda one: one.date, reverse=True)
    running = [one for one in _running(reports) if time.time() - one.updated < LATEST]
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("list.html").render(reports=listed, running=running)


def _running(reports: Path) -> Iterator[Running]:
    for path in sorted((reports / LIVE).glob(f"*{STATE}")):
        try:
            content = read_sealed(path)
            one = Running(**{key: content[key] for key in Running.__dataclass_fields__})
        except (OSError, UnreadableError, KeyError, TypeError):
            continue
        if one.study == path.stem and isinstance(one.updated, float):
            yield one


def _read(folder: Path) -> Listed | None:
    """What the files of a report say of it; None where another program left them half."""
    try:
        facts = dict(reversed([(row["key"], row["value"]) for row in _rows(folder / "facts.csv")]))
        ended = [row["finished"] for row in _rows(folder / "summary.csv")]
    except (OSError, KeyError, ValueError, csv.Error):
        return None
    drawn = (f"figures/{name}.png" for name in THUMBNAILS)
    return Listed(
        folder.name,
        facts.get("question") or facts.get("study") or folder.name,
        facts.get("runs_finished", ""),
        facts.get("runs", ""),
        max(ended, default="")[:10],
        next((path for path in drawn if (folder / path).is_file()), None),
    )


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
