"""The list of all reports in a folder, as one page beside them: question, picture, date and state."""

import csv
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from poslab.record.files import write_atomic

TEMPLATES = Path(__file__).parent / "render" / "templates"
THUMBNAILS = ("sliding_loss_by_length", "loss_by_length", "validation_loss")  # the first that a report has


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
    """Write `reports`/index.html: every report there, the latest first."""
    listed = [one for path in sorted(reports.glob("*/facts.csv")) if (one := _read(path.parent)) is not None]
    listed.sort(key=lambda one: one.date, reverse=True)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    page = reports / "index.html"
    write_atomic(page, environment.get_template("list.html").render(reports=listed))
    return page


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
