"""The page's section on rotations changed after training: what they reach, a panel an arm, a table."""

from collections.abc import Sequence

from poslab.report.analysis.results import Results
from poslab.report.formatting import escape_html
from poslab.report.markup import legend_html, links_html, source_html, table_html
from poslab.report.panels import PanelChart
from poslab.report.rescaled_words import TITLE, about, findings, rescaled_table


def rescaled_section(results: Results, charts: Sequence[PanelChart], first: int) -> str:
    """The section, its figures numbered from `first` on; nothing where no run was rescaled."""
    if not results.rescaled:
        return ""
    table = rescaled_table(results)
    items = "".join(f"<li>{escape_html(text)}</li>" for text in findings(results))
    figures = "".join(panel_figure(i, chart) for i, chart in enumerate(charts, first))
    return (
        f'<section id="rescaled"><h2>{TITLE}</h2><p class="caption">{escape_html(about(results))}</p>'
        f'<ul class="notes">{items}</ul><div class="figures">{figures}</div>'
        f'<h3>{escape_html(table.title)}</h3><p class="caption">{escape_html(table.caption)}</p>'
        f"{table_html(table)}{source_html(table)}</section>"
    )


def panel_figure(index: int, chart: PanelChart, shown: str = "Rotations") -> str:
    """The figure with its legend of `shown`; the page's script draws the panels."""
    legend = legend_html("line", f"{shown} shown", chart.legend)
    panels = "".join(
        f'<div class="panel"><h3>{escape_html(panel.title)}</h3>'
        f'<div class="plot" tabindex="0" role="img" aria-label="{escape_html(panel.description)}"></div>'
        "</div>"
        for panel in chart.panels
    )
    wide = ' class="whole"' if len(chart.panels) > 1 else ""
    return (
        f'<figure{wide} id="{chart.name}"><figcaption><b>Figure {index}. {escape_html(chart.title)}</b>'
        f"{escape_html(chart.caption)}</figcaption>"
        f'{legend}<div class="panels">{panels}</div>{links_html(chart.name)}</figure>'
    )
