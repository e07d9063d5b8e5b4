"""The page's sections with figures of their own: lines, panels of lines, and tables of shaded numbers."""

from collections.abc import Callable, Sequence
from functools import singledispatch

from poslab.report.analysis.results import Results
from poslab.report.analysis.statistics import Estimate
from poslab.report.charts import LineChart
from poslab.report.formatting import DASH, escape_html
from poslab.report.heat import HeatPanel, HeatPanels
from poslab.report.markup import cell_html, links_html, source_html, table_html
from poslab.report.page_rescaled import panel_figure
from poslab.report.panels import PanelChart
from poslab.report.section import Section
from poslab.report.tables import Cell

LineFigure = Callable[[int, LineChart, Results], str]  # how the page shows a line chart


def sections_html(results: Results, sections: Sequence[Section], first: int, line_figure: LineFigure) -> str:
    """The sections, their figures numbered from `first` on."""
    parts = []
    for section in sections:
        parts.append(_section(results, section, first, line_figure))
        first += len(section.charts)
    return "\n".join(parts)


def _section(results: Results, section: Section, first: int, line_figure: LineFigure) -> str:
    figures = "".join(
        line_figure(i, chart, results) if isinstance(chart, LineChart) else _figure(chart, i)
        for i, chart in enumerate(section.charts, first)
    )
    items = "".join(f"<li>{escape_html(text)}</li>" for text in section.findings)
    tables = "".join(
        f'<h3>{escape_html(table.title)}</h3><p class="caption">{escape_html(table.caption)}</p>'
        f"{table_html(table)}{source_html(table)}"
        for table in section.tables
    )
    return (
        f'<section id="{section.name}"><h2>{escape_html(section.title)}</h2>'
        f'<p class="caption">{escape_html(section.about)}</p><ul class="notes">{items}</ul>'
        f'<div class="figures">{figures}</div>{tables}</section>'
    )


@singledispatch
def _figure(chart: object, index: int) -> str:
    raise TypeError(f"no figure of a {type(chart).__name__}")


@_figure.register
def _panels(chart: PanelChart, index: int) -> str:
    return panel_figure(index, chart, "Heads")


@_figure.register
def _heat(chart: HeatPanels, index: int) -> str:
    """A table an arm, its cells shaded: it needs no script, and is read as the table that it is."""
    panels = "".join(_table(chart, panel) for panel in chart.panels)
    low, high = (escape_html(chart.end(value)) for value in (chart.low, chart.high))
    return (
        f'<figure class="whole" id="{chart.name}">'
        f"<figcaption><b>Figure {index}. {escape_html(chart.title)}</b>{escape_html(chart.caption)}"
        f'<span class="shades">{escape_html(chart.unit)}: <span>{low}<i></i>{high}</span></span></figcaption>'
        f'<div class="heats">{panels}</div>{links_html(chart.name)}</figure>'
    )


def _table(chart: HeatPanels, panel: HeatPanel) -> str:
    heads = "".join(f'<th scope="col">{escape_html(title)}</th>' for title in panel.column_titles)
    rows = "".join(
        f'<tr><th scope="row">{escape_html(title)}</th>'
        f"{''.join(_cell(chart, panel, cell) for cell in cells)}</tr>"
        for title, cells in zip(panel.row_titles, panel.cells, strict=True)
    )
    label = escape_html(f"Table: {chart.title}, {panel.label}")
    return (
        f'<div class="box" tabindex="0" role="region" aria-label="{label}"><table class="heat">'
        f"<caption>{cell_html(Cell(panel.label, arm=panel.arm))}</caption>"
        f'<thead><tr><td></td><th class="group" scope="colgroup" colspan="{len(panel.column_titles)}">'
        f"{escape_html(chart.column_label)}</th></tr>"
        f'<tr><th scope="col">{escape_html(chart.row_label)}</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _cell(chart: HeatPanels, panel: HeatPanel, cell: Estimate | None) -> str:
    if cell is None:
        return f'<td><span class="dash">{DASH}</span></td>'
    half = chart.half(cell, panel)
    under = f'<span class="half"> {escape_html(half)}</span>' if half else ""
    return f'<td style="--heat:{chart.part(cell.mean):.3f}">{escape_html(chart.shown(cell.mean))}{under}</td>'
