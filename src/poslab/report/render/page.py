"""The report as one self-contained web page: it fetches nothing, and all text is escaped."""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from poslab.analysis.palette import look
from poslab.report.charts import LineChart, PanelChart
from poslab.report.document import Chapter, Document, Section
from poslab.report.tables import Cell, Column, Table

HERE = Path(__file__).parent
SCRIPTS = ("numbers.js", "chart.js", "figure.js", "table.js", "page.js")  # joined in this order
LONG = 400  # characters: longer captions are folded away below their table
_BESIDE_A_NUMBER = re.compile(r"(?<=\d) (?=[%±]|[kMGTL]\b)|(?<=[±×<>≥]) (?=[\d×])")
_INTERVAL = re.compile(r"(\S+(?: [kMGT])?)( (?:± |\[[\d.]).*)")  # a number, then its interval


def page(document: Document, status: str = "", seconds: int = 0) -> str:
    """Return the content of index.html. With a `status`, show it and reload every `seconds` seconds."""
    library = f"/*\n{_asset('uPlot.LICENSE.txt').strip()}\n*/\n{_asset('uPlot.iife.min.js').strip()}"
    script = "\n".join(_asset(name) for name in SCRIPTS)
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in (library, script))
    return (
        _environment()
        .get_template("page.html")
        .render(
            document=document,
            status=status,
            seconds=seconds,
            chapters=numbered(document),
            policy=f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
            "base-uri 'none'; form-action 'none'",
            style=Markup(_asset("uPlot.min.css") + _asset("page.css") + _colours(document)),
            data=chart_data(document),
            library=Markup(library),
            script=Markup(script),
        )
    )


def numbered(document: Document) -> list[tuple[Chapter, list[tuple[Section, int]]]]:
    """Return the chapters with their non-empty sections, each with the number of its first figure."""
    first = 1 if document.answer.chart is None else 2
    chapters = []
    for chapter in document.chapters:
        visible = []
        for section in chapter.sections:
            if section.charts or section.tables:
                visible.append((section, first))
            first += len(section.charts)
        chapters.append((chapter, visible))
    return chapters


def templates(folder: Path = HERE, **options: Any) -> Environment:
    """Return an environment for the templates in `folder`, in which an undefined name is an error."""
    return Environment(loader=FileSystemLoader(folder / "templates"), undefined=StrictUndefined, **options)


@cache
def _environment() -> Environment:
    environment = templates(autoescape=True, finalize=_unparted)
    environment.globals |= {"long": LONG}
    environment.filters |= {
        "kind": lambda chart: type(chart).__name__,
        "dashes": lambda number: " ".join(f"{part:g}" for part in look(number).dash),
        "spans": _spans,
        "bodies": _bodies,
        "halves": _halves,
    }
    return environment


def _unparted(value: Any) -> Any:
    """Keep a number on one line with its sign or unit: 95 %, 0.1 ± 0.2, 8 L."""
    return _BESIDE_A_NUMBER.sub("\u00a0", value) if type(value) is str else value


@cache
def _asset(name: str) -> str:
    return (HERE / "assets" / name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _colours(document: Document) -> str:
    """Return the CSS with the colours of all arms, rotations and heads in light and dark mode."""
    numbers = {*document.arms}
    numbers |= {number for number, _ in _legends(document)}
    tables = (table for section in document.sections for table in section.tables)
    for table in (document.answer.table, *tables):
        numbers |= {cell.arm for row in table.rows for cell in row if cell.arm is not None}
    looks = {i: look(i) for i in sorted(numbers)}
    return "".join(f".a{i}{{--arm:light-dark({arm.light},{arm.dark})}}" for i, arm in looks.items())


def _panel_charts(document: Document) -> list[PanelChart]:
    return [chart for chart in document.charts if isinstance(chart, PanelChart)]


def _legends(document: Document) -> list[tuple[int, str]]:
    return [entry for chart in _panel_charts(document) for entry in chart.legend]


def _spans(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Return each group heading with the number of neighbouring columns that share it."""
    return [(group, len(list(members))) for group, members in groupby(columns, key=lambda c: c.group)]


def _bodies(table: Table) -> list[tuple[Cell | None, list[Sequence[Cell]]]]:
    """Return the rows of a table, grouped by their first cell if the table is `grouped`."""
    if not table.grouped:
        return [(None, list(table.rows))]
    groups = groupby(table.rows, key=lambda row: row[0])
    return [(first, [row[1:] for row in rows]) for first, rows in groups]


def _halves(text: str) -> tuple[str, str]:
    """Split the text of a cell into the number and the interval shown below it."""
    interval = _INTERVAL.fullmatch(text)
    return (text, "") if interval is None else (interval[1], interval[2])


def chart_data(document: Document) -> str:
    """Return arms and charts for the script, as JSON that cannot close its script element."""
    lines = [chart for chart in document.charts if isinstance(chart, LineChart)]
    charts = [_chart(chart) | {"of": "arms", "panel": 0, "panels": 1} for chart in lines]
    for chart in _panel_charts(document):
        charts += [
            _chart(panel)
            | {"name": chart.name, "title": panel.title}
            | {"of": "lines", "panel": i, "panels": len(chart.panels)}
            for i, panel in enumerate(chart.panels)
        ]
    legends = {"arms": document.arms.items(), "lines": _legends(document)}
    data = {
        kind: {number: {"label": label, **asdict(look(number))} for number, label in legend}
        for kind, legend in legends.items()
    } | {"charts": charts}
    return htmlsafe_json_dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _chart(chart: LineChart) -> dict[str, Any]:
    """Return a chart for the script; every series has an entry for each x of any series."""
    xs = sorted({point.x for series in chart.series for point in series.points})
    series = []
    for line in chart.series:
        by_x = {point.x: (point.mean, point.half_width, point.n) for point in line.points}
        mean, half, counts = zip(*(by_x.get(x, (None, None, None)) for x in xs), strict=True)
        series.append(
            {
                "arm": line.arm,
                "mean": mean,
                "half": half,
                "n": counts,
                "lowest": min(point.lowest for point in line.points),
                "highest": max(point.highest for point in line.points),
            }
        )
    apart = {"title", "caption", "series", "spans"}  # all other fields are copied
    return {name: value for name, value in vars(chart).items() if name not in apart} | {
        "x": xs,
        "series": series,
        "spans": list(map(vars, chart.spans)),
    }
