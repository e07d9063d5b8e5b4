"""The report as one web page: styles, charts and data inside, nothing fetched, every text escaped."""

import base64
import hashlib
import json
import math
import re
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from poslab.report import provenance, tables
from poslab.report.charts import LineChart, TargetChart
from poslab.report.figures import FORMATS
from poslab.report.formatting import DASH, escape_html, plain, quantity
from poslab.report.notes import notes, summary
from poslab.report.results import Results
from poslab.report.style import look
from poslab.report.tables import Cell, Column, Table

POINTS = 24_000  # in all charts together: more would take the page past 1 MB

_INTERVAL = re.compile(r"(\S+(?: [kMGT])?)( (?:± |\[[\d.]).*)")  # a number, then how sure it is


def page(results: Results, lines: Sequence[LineChart], targets: TargetChart | None) -> str:
    """The whole of index.html."""
    scripts = {
        "library": f"/*\n{_asset('uPlot.LICENSE.txt').strip()}\n*/\n{_asset('uPlot.iife.min.js').strip()}",
        "script": _asset("page.js"),
    }
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in scripts.values())
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
    figures = [_line_figure(i, chart, results) for i, chart in enumerate(lines, 1)]
    if targets is not None:
        figures.append(_target_figure(len(lines) + 1, targets, results))
    first = [tables.arms_table(results), tables.comparisons_table(results)]
    parts = {
        "policy": escape_html(policy),
        "study": escape_html(results.study),
        "style": _asset("uPlot.min.css") + _asset("page.css") + _colours(results),
        "summary": escape_html(summary(results)),
        "facts": _facts(provenance.facts(results)),
        "notes": _notes(results),
        "tables": "\n".join(_section(table) for table in first if table is not None),
        "figures": "\n".join(figures),
        "records": "\n".join(
            _section(t) for t in (tables.protocols_table(results), tables.runs_table(results))
        ),
        "reproduce": _reproduce(results),
        "data": _json(_data(results, lines)),
        **scripts,
    }
    # In one pass, so that a text that looks like a placeholder stays text.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


@cache
def _asset(name: str) -> str:
    return (Path(__file__).parent / "assets" / name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _colours(results: Results) -> str:
    looks = [look(i) for i in range(len(results.arms))]
    light = "".join(f".a{i}{{--arm:{one.light}}}" for i, one in enumerate(looks))
    dark = "".join(f".a{i}{{--arm:{one.dark}}}" for i, one in enumerate(looks))
    return f"{light}@media (prefers-color-scheme: dark){{{dark}}}"


def _facts(found: Sequence[tuple[str, str]]) -> str:
    return "".join(f"<div><dt>{escape_html(k)}</dt><dd>{escape_html(v)}</dd></div>" for k, v in found if v)


def _notes(results: Results) -> str:
    items = [
        f'<li class="warning"><b>Note well.</b> {escape_html(note.text)}</li>'
        if note.warning
        else f"<li>{escape_html(note.text)}</li>"
        for note in notes(results)
    ]
    return f'<ul class="notes">{"".join(items)}</ul>' if items else ""


def _section(table: Table) -> str:
    source = f'<p class="source">In full: <a href="{table.source}">{table.source}</a></p>'
    return (
        f'<section id="{table.name}"><h2>{escape_html(table.title)}</h2>'
        f'<p class="caption">{escape_html(table.caption)}</p>{_table(table)}{source}</section>'
    )


def _table(table: Table) -> str:
    head = ""
    if any(column.group for column in table.columns):
        groups = [
            (key, len(list(found))) for key, found in groupby(table.columns, key=lambda column: column.group)
        ]
        cells = "".join(
            f'<th class="group" colspan="{n}" scope="colgroup"><span>{escape_html(key)}</span></th>'
            if key
            else f'<td colspan="{n}"></td>'
            for key, n in groups
        )
        head = f"<tr>{cells}</tr>"
    titles = "".join(
        f'<th scope="col"{_kind(column)}>{escape_html(column.title)}</th>' for column in table.columns
    )
    rows = "".join(f"<tr>{_row(row, table.columns)}</tr>" for row in table.rows)
    label = escape_html(f"Table: {table.title}")
    return (
        f'<div class="box" tabindex="0" role="region" aria-label="{label}"><table>'
        f"<thead>{head}<tr>{titles}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(row: Sequence[Cell], columns: Sequence[Column]) -> str:
    first = f'<th scope="row" class="text">{_cell(row[0])}</th>'
    rest = zip(row[1:], columns[1:], strict=True)
    return first + "".join(f"<td{_kind(column, cell)}>{_cell(cell)}</td>" for cell, column in rest)


def _kind(column: Column, cell: Cell | None = None) -> str:
    if column.number:
        return ""
    return ' class="text wide"' if cell is not None and len(cell.text) > 32 else ' class="text"'


def _cell(cell: Cell) -> str:
    text = escape_html(cell.text)
    if cell.text == DASH:
        text = f'<span class="dash">{DASH}</span>'
    elif found := _INTERVAL.fullmatch(text):
        text = f'{found[1]}<span class="half">{found[2]}</span>'
    if cell.link:
        text = f'<a href="{escape_html(cell.link)}" rel="noopener noreferrer">{text}</a>'
    return f'<span class="chip a{cell.arm}"></span>{text}' if cell.arm is not None else text


def _line_figure(index: int, chart: LineChart, results: Results) -> str:
    buttons = "".join(
        f'<button type="button" class="a{series.arm}" data-arm="{series.arm}" aria-pressed="true">'
        f"{_key(series.arm)}<span>{escape_html(series.label)}</span> <output></output></button>"
        for series in chart.series
    )
    return (
        f'<figure id="{chart.name}"><figcaption><b>Figure {index}. {escape_html(chart.title)}</b>'
        f"{escape_html(chart.caption)}</figcaption>"
        f'<div class="legend" role="group" aria-label="Arms shown">{buttons}</div>'
        '<p class="at" aria-live="polite">Point at the chart, or focus it and use the arrow keys.</p>'
        f'<div class="plot" tabindex="0" role="img" aria-label="{escape_html(chart.description)}"></div>'
        f"{_links(chart.name)}</figure>"
    )


def _key(arm: int) -> str:
    dash = " ".join(f"{part:g}" for part in look(arm).dash)
    return (
        '<svg width="24" height="8" aria-hidden="true"><line x1="1" y1="4" x2="23" y2="4" '
        f'stroke="currentColor" stroke-width="2.2" stroke-dasharray="{dash}"/></svg>'
    )


def _links(name: str) -> str:
    files = [("CSV", f"{name}.csv"), *((kind.upper(), f"figures/{name}.{kind}") for kind in FORMATS)]
    return '<p class="links">' + "".join(f'<a href="{path}">{title}</a>' for title, path in files) + "</p>"


def _target_figure(index: int, chart: TargetChart, results: Results) -> str:
    edge = max(reach.budget for reach in chart.reaches)
    rows = []
    for i, item in enumerate(results.arms):
        mine = [reach for reach in chart.reaches if reach.arm == i]
        if not mine:
            continue
        dots = "".join(
            f'<i class="p{100 * reach.target.fraction:g}{"" if reach.tokens is not None else " missed"}" '
            f'style="left:{100 if reach.tokens is None else 100 * reach.tokens / edge:.3f}%"></i>'
            for reach in mine
        )
        cells = "".join(f"<td>{_cell(Cell(tables.to_target(item, t.suffix)))}</td>" for t in results.targets)
        rows.append(
            f'<tr data-arm="{i}" class="a{i}">'
            f'<th scope="row" class="text">{_cell(Cell(item.arm.label, arm=i))}</th>'
            f'<td class="track" aria-hidden="true"><div>{dots}</div></td>{cells}</tr>'
        )
    heads = "".join(
        f'<th scope="col" class="key"><i class="p{100 * t.fraction:g}"></i>{100 * t.fraction:g} %</th>'
        for t in results.targets
    )
    scale = "".join(f"<span>{'0' if k == 0 else quantity(edge * k / 4)}</span>" for k in range(5))
    return (
        f'<figure class="whole" id="{chart.name}">'
        f"<figcaption><b>Figure {index}. {escape_html(chart.title)}</b>"
        f"{escape_html(chart.caption)}</figcaption>"
        f'<div class="box" tabindex="0" role="region" aria-label="{escape_html(chart.description)}">'
        f'<table class="targets"><thead><tr><th scope="col" class="text">Arm</th>'
        f'<th class="track" aria-hidden="true"><span class="scale">{scale}</span></th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{_links(chart.name)}</figure>"
    )


def _reproduce(results: Results) -> str:
    parts = ["<p>The report is made from the run records alone:</p>"]
    parts.append(f"<pre>{escape_html(provenance.report_command(results))}</pre>")
    if results.commands:
        lines = escape_html("\n".join(results.commands))
        parts.append(f"<p>The runs were made by:</p><pre>{lines}</pre>")
    parts.append(f'<dl class="facts">{_facts(provenance.origins(results))}</dl>')
    settings = provenance.settings_table(results)
    if settings is not None:
        parts.append(f"<h3>{escape_html(settings.title)}</h3>{_table(settings)}")
    whose = escape_html(plain(provenance.shown_run(results).name, 80))
    parts.append(
        f"<details><summary>Configuration of {whose}</summary>"
        f"<pre>{escape_html(provenance.configuration(results))}</pre></details>"
    )
    return "".join(parts)


def _data(results: Results, lines: Sequence[LineChart]) -> dict[str, Any]:
    looks = [look(i) for i in range(len(results.arms))]
    arms = [
        {
            "label": item.arm.label,
            "light": one.light,
            "dark": one.dark,
            "marker": one.marker,
            "dash": list(one.dash),
        }
        for item, one in zip(results.arms, looks, strict=True)
    ]
    total = sum(len(series.points) for chart in lines for series in chart.series)
    return {"arms": arms, "charts": [_chart(chart, math.ceil(total / POINTS)) for chart in lines]}


def _chart(chart: LineChart, every: int) -> dict[str, Any]:
    """A chart for the script; of very many points every n-th, the CSV has them all."""
    kept = {s.arm: s.points[::-1][::every][::-1] for s in chart.series}
    xs = sorted({point.x for points in kept.values() for point in points})
    series = []
    for one in chart.series:
        at = {point.x: point for point in kept[one.arm]}
        found = [at.get(x) for x in xs]
        bounds = [
            (p.mean, p.half_width) if p is not None and p.half_width is not None else None for p in found
        ]
        series.append(
            {
                "arm": one.arm,
                "mean": [None if p is None else _short(p.mean) for p in found],
                "low": [None if b is None else _short(b[0] - (b[1] or 0)) for b in bounds],
                "high": [None if b is None else _short(b[0] + (b[1] or 0)) for b in bounds],
                "lowest": _short(min(point.lowest for point in one.points)),
                "highest": _short(max(point.highest for point in one.points)),
            }
        )
    return {
        "name": chart.name,
        "x": [_short(x) for x in xs],
        "x_label": chart.x_label,
        "y_label": chart.y_label,
        "base": chart.base,
        "ticks": [[_short(x), label] for x, label in chart.ticks],
        "mark": chart.mark,
        "series": series,
    }


def _short(value: float) -> float:
    return float(f"{value:.6g}")
