"""The report as one web page: styles, charts and data inside, nothing fetched, every text escaped."""

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from poslab.config.text import plain
from poslab.report import provenance, tables
from poslab.report.analysis.results import Results
from poslab.report.charts import LineChart, TargetChart
from poslab.report.folding import folded
from poslab.report.formatting import escape_html, quantity
from poslab.report.heat import SCALE_FROM
from poslab.report.markup import (
    cell_html,
    legend_html,
    links_html,
    section_html,
    source_html,
    sources_html,
    table_html,
    value_html,
)
from poslab.report.notes import notes
from poslab.report.page_data import chart_data
from poslab.report.page_rescaled import rescaled_section
from poslab.report.page_sections import sections_html
from poslab.report.panels import PanelChart
from poslab.report.rates_words import rates_table
from poslab.report.section import Section
from poslab.report.style import line_number, look
from poslab.report.tables import Cell
from poslab.report.verdict import verdict

SCRIPTS = ("numbers.js", "chart.js", "figure.js", "table.js", "page.js")  # in this order, as one


def page(
    results: Results,
    lines: Sequence[LineChart],
    targets: TargetChart | None,
    panels: Sequence[PanelChart],
    sections: Sequence[Section] = (),
) -> str:
    """The whole of index.html."""
    scripts = {
        "library": f"/*\n{_asset('uPlot.LICENSE.txt').strip()}\n*/\n{_asset('uPlot.iife.min.js').strip()}",
        "script": "\n".join(_asset(name) for name in SCRIPTS),
    }
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in scripts.values())
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
    figures = [_line_figure(i, chart, results) for i, chart in enumerate(lines, 1)]
    if targets is not None:
        figures.append(_target_figure(len(lines) + 1, targets, results))
    before = len(figures) + len(panels)
    lines = [*lines, *(chart for section in sections for chart in section.lines)]
    every = [*panels, *(chart for section in sections for chart in section.panels)]
    first = [tables.arms_table(results), tables.comparisons_table(results)]
    last = [tables.protocols_table(results), rates_table(results), folded(tables.runs_table(results))]
    parts = {
        "policy": escape_html(policy),
        "study": escape_html(results.study),
        "style": _asset("uPlot.min.css") + _asset("page.css") + _colours(results, every),
        "summary": escape_html(verdict(results)),
        "facts": _facts(provenance.facts(results)),
        "notes": _notes(results),
        "tables": "\n".join(section_html(table) for table in first if table is not None),
        "figures": "\n".join(figures),
        "rescaled": rescaled_section(results, panels, len(figures) + 1),
        "sections": sections_html(results, sections, before + 1, _line_figure),
        "records": "\n".join(section_html(t) for t in last if t is not None),
        "reproduce": _reproduce(results),
        "data": chart_data(results, lines, every),
        **scripts,
    }
    # In one pass, so that a text that looks like a placeholder stays text.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


@cache
def _asset(name: str) -> str:
    return (Path(__file__).parent / "assets" / name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _colours(results: Results, panels: Sequence[PanelChart]) -> str:
    numbers = {line_number(line.place) for one in results.rescaled for line in one.lines}
    numbers |= {number for chart in panels for number, _ in chart.legend}
    looks = {i: look(i) for i in sorted({*range(len(results.arms)), *numbers})}
    light = "".join(f".a{i}{{--arm:{one.light}}}" for i, one in looks.items())
    dark = "".join(f":root:not(.paper) .a{i}{{--arm:{one.dark}}}" for i, one in looks.items())
    return f"{light}@media screen and (prefers-color-scheme: dark){{{dark}}}"


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


def _line_figure(index: int, chart: LineChart, results: Results) -> str:
    legend = legend_html("arm", "Arms shown", [(series.arm, series.label) for series in chart.series])
    return (
        f'<figure id="{chart.name}"><figcaption><b>Figure {index}. {escape_html(chart.title)}</b>'
        f"{escape_html(chart.caption)}</figcaption>"
        f'{legend}<div class="plot" tabindex="0" role="img" '
        f'aria-label="{escape_html(chart.description)}"></div>'
        f"{links_html(chart.name)}</figure>"
    )


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
        times = [Cell(tables.to_target(item, target.suffix)) for target in results.targets]
        cells = "".join(f"<td{value_html(cell)}>{cell_html(cell)}</td>" for cell in times)
        rows.append(
            f'<tr data-arm="{i}" class="a{i}">'
            f'<th scope="row" class="text">{cell_html(Cell(item.arm.label, arm=i))}</th>'
            f'<td class="track" aria-hidden="true"><div>{dots}</div></td>{cells}</tr>'
        )
    heads = "".join(
        f'<th scope="col" class="key"><i class="p{100 * t.fraction:g}"></i>{100 * t.fraction:g} %</th>'
        for t in results.targets
    )
    scale = f"<span>{SCALE_FROM:g}</span><span>{quantity(edge)}</span>"
    return (
        f'<figure class="whole" id="{chart.name}">'
        f"<figcaption><b>Figure {index}. {escape_html(chart.title)}</b>"
        f"{escape_html(chart.caption)}</figcaption>"
        f'<div class="box" tabindex="0" role="region" aria-label="{escape_html(chart.description)}">'
        f'<table class="targets"><thead><tr><th scope="col" class="text">Arm</th>'
        f'<th class="track" aria-hidden="true"><span class="scale">{scale}</span></th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{links_html(chart.name)}</figure>"
    )


def _reproduce(results: Results) -> str:
    parts = ["<p>The report is made from the run records alone:</p>"]
    parts.append(f"<pre>{escape_html(provenance.report_command(results))}</pre>")
    if results.commands:
        lines = escape_html("\n".join(results.commands))
        parts.append(f"<p>The runs were made by:</p><pre>{lines}</pre>")
    parts.append(f'<dl class="facts">{_facts(provenance.origins(results))}</dl>')
    parts.append(sources_html(provenance.SOURCES))
    settings = provenance.settings_table(results)
    if settings is not None:
        parts.append(f"<h3>{escape_html(settings.title)}</h3>{table_html(settings)}{source_html(settings)}")
    whose = escape_html(plain(provenance.shown_run(results).name, 80))
    parts.append(
        f"<details><summary>Configuration of {whose}</summary>"
        f"<pre>{escape_html(provenance.configuration(results))}</pre></details>"
    )
    return "".join(parts)
