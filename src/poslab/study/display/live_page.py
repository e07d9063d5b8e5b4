"""A study in a browser while it is made: reports/live/STUDY.html, which loads itself again every few seconds.

It shows which runs are under way, how far they are and their validation losses so far. What it reads is not
sealed yet and may be half written, so it is shown here alone and never reported.
"""

import csv
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from poslab.analysis.palette import arm_numbers, look
from poslab.config.text import plain
from poslab.record.schema import METRICS
from poslab.record.seal import sealed
from poslab.report.listed import LIVE, STATE, Running, list_pages
from poslab.study.display.progress_file import Progress
from poslab.study.display.study_view import Entry, StudyDisplay, counts

if TYPE_CHECKING:
    from jinja2 import Template

SECONDS = 10.0  # between two writes, and two loads of the page
DRAWN = 120  # runs whose curves are drawn
WIDTH, HEIGHT = 720.0, 300.0  # of the curves, in the units of the drawing


@dataclass(frozen=True)
class Curve:
    """A run's validation losses as a line of the drawing."""

    label: str
    light: str  # its colour on white paper
    dark: str
    points: str  # of an SVG polyline


@dataclass
class Shown:
    """A run as the page shows it."""

    entry: Entry
    pos: str
    attention: str
    losses: list[tuple[float, float]] = field(default_factory=list)  # by tokens, nats a token
    read_at: float = -math.inf  # when metrics.csv was last changed, as far as it is read


class LivePage:
    """Writes the page of each study of `runs` while `display` shows them; the list of reports names it.

    A folder that cannot be written raises nothing: the study goes on without a page.
    """

    def __init__(
        self,
        reports: Path,
        study: str,
        question: str,
        runs: Sequence[Shown],
        display: StudyDisplay,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.reports, self.study, self.question = reports, study, question
        self.runs, self.display, self.clock = runs, display, clock
        self.path = reports / LIVE / f"{study}.html"
        self.written_at = -math.inf

    def update(self) -> None:
        """Write the page where the last one is old; to be called as often as the display."""
        if self.clock() - self.written_at < SECONDS:
            return
        self.written_at = self.clock()
        with suppress(OSError):
            self._read()
            line = counts([each.entry for each in self.runs], self.display.seconds_left()).plain
            running = Running(self.study, self.question or self.study, line, self.clock())
            _write(self.path, self._page(line))
            _write(self.path.with_suffix(STATE), sealed(asdict(running)))
            _write_list(self.reports)

    def remove(self) -> None:
        """The study was stopped: there is no page of it any more."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
            self.path.with_suffix(STATE).unlink(missing_ok=True)
            _write_list(self.reports)

    def _page(self, line: str) -> str:
        progress = self.display.progress()
        return _template().render(
            forward=None,
            title=plain(self.question or self.study, 300),
            study=plain(self.study, 120),
            line=line,
            seconds=int(SECONDS),
            when=time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.clock())),
            rows=list(self._rows(progress)),
            curves=self._curves(),
            axis=self._axis(),
            width=WIDTH,
            height=HEIGHT,
        )

    def _rows(self, progress: dict[Path, Progress]) -> Iterator[dict[str, str | float]]:
        """A row a run: those under way first, then what failed, what waits, what is done."""
        order = ("running", "elsewhere", "failed", "stopped", "waiting", "done")
        for each in sorted(self.runs, key=lambda one: order.index(one.entry.state)):
            entry, at = each.entry, progress.get(each.entry.directory)
            under_way = entry.state in ("running", "elsewhere") and at is not None
            yield {
                "title": plain(entry.title, 160),
                "state": at.phase if under_way and at is not None else entry.state,
                "share": at.share if under_way and at is not None else 0.0,
                "under_way": under_way,
                "loss": f"{each.losses[-1][1]:.3f}" if each.losses else "",
                "note": plain(entry.note, 300),
            }

    def _read(self) -> None:
        """Read on in the losses of runs that have gone on."""
        for each in self.runs:
            with suppress(OSError, ValueError, KeyError, csv.Error, ZeroDivisionError):
                path = each.entry.directory / METRICS.file
                changed = path.stat().st_mtime
                if changed > each.read_at:
                    with path.open(newline="", encoding="utf-8") as file:
                        each.losses = list(_losses(file))
                    each.read_at = changed

    def _curves(self) -> list[Curve]:
        shown = [each for each in self.runs if len(each.losses) > 1][-DRAWN:]
        arms = list(dict.fromkeys((each.pos, each.attention) for each in self.runs))
        looks = dict(zip(arms, map(look, arm_numbers(arms)), strict=True))
        several = len({attention for _, attention in arms}) > 1
        left, right, low, high = self._frame()
        curves = []
        for each in shown:
            style = looks[each.pos, each.attention]
            places = (
                (
                    WIDTH * (math.log(tokens) - left) / (right - left),
                    HEIGHT * (high - min(loss, high)) / (high - low),
                )
                for tokens, loss in each.losses
            )
            label = f"{each.pos} / {each.attention}" if several else each.pos
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            curves.append(Curve(plain(label, 80), style.light, style.dark, points))
        return curves

    def _frame(self) -> tuple[float, float, float, float]:
        """The ends of x, in logarithms of tokens, and of y in nats: the fall's first fifth is cut off."""
        x = [math.log(tokens) for each in self.runs for tokens, _ in each.losses]
        y = [loss for each in self.runs for _, loss in each.losses]
        if not x:
            return 0.0, 1.0, 0.0, 1.0
        low, high = min(y), max(y)
        return min(x), max(max(x), min(x) + 1e-6), low, max(low + 0.8 * (high - low), low + 1e-6)

    def _axis(self) -> dict[str, str] | None:
        """The ends of both axes in words, or None where there is no curve yet."""
        if not any(len(each.losses) > 1 for each in self.runs):
            return None
        left, right, low, high = self._frame()
        return {
            "left": f"{math.exp(left):,.0f}",
            "right": f"{math.exp(right):,.0f}",
            "low": f"{low:.2f}",
            "high": f"{high:.2f}",
        }


def lead_on(reports: Path, study: str, report: Path) -> None:
    """Where the study has a page, let it lead on to the page of its `report`, and be listed no more."""
    path = reports / LIVE / f"{study}.html"
    with suppress(OSError):
        if path.with_suffix(STATE).is_file():  # else it leads on already
            path.with_suffix(STATE).unlink()
            target = f"../{quote(report.parent.name)}/{report.name}"
            _write(path, _template().render(forward=target, title=plain(study, 120)))
            _write_list(reports)


def _write_list(reports: Path) -> None:
    for name, text in list_pages(reports).items():
        _write(reports / name, text)


def _write(path: Path, text: str) -> None:
    """Replace `path`. Unlike what is to last, it is not synced, and waits for no room on a full disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _losses(file: "Iterator[str]") -> Iterator[tuple[float, float]]:
    for row in csv.DictReader(file):
        if row["validation_nll"] and float(row["tokens"]) > 0:
            loss = float(row["validation_nll"]) / float(row["validation_tokens"])
            if math.isfinite(loss):
                yield float(row["tokens"]), loss


def _template() -> "Template":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template("live_page.html")
