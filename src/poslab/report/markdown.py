"""The report as Markdown, with the paper figures: the same tables and words as the page."""

from collections.abc import Sequence

from poslab.report import provenance, tables
from poslab.report.analysis.results import Results
from poslab.report.charts import LineChart, TargetChart
from poslab.report.folding import folded
from poslab.report.formatting import escape_markdown
from poslab.report.heat import HeatPanels
from poslab.report.notes import notes
from poslab.report.panels import PanelChart
from poslab.report.rates_words import rates_table
from poslab.report.rescaled_words import TITLE, about, findings, rescaled_table
from poslab.report.section import Section
from poslab.report.tables import Cell, Table
from poslab.report.verdict import verdict


def markdown(
    results: Results,
    charts: Sequence[LineChart | TargetChart],
    panels: Sequence[PanelChart],
    sections: Sequence[Section] = (),
) -> str:
    """The whole of report.md."""
    parts = [f"# {escape_markdown(results.study)}", escape_markdown(verdict(results))]
    parts.append(
        "\n".join(f"- {escape_markdown(k)}: {escape_markdown(v)}" for k, v in provenance.facts(results))
    )
    parts += [
        f"> **Note well.** {escape_markdown(note.text)}"
        if note.warning
        else f"> {escape_markdown(note.text)}"
        for note in notes(results)
    ]
    first = [tables.arms_table(results), tables.comparisons_table(results)]
    parts += [_section(table) for table in first if table is not None]
    parts.append("## Figures")
    parts += [_figure(i, chart) for i, chart in enumerate(charts, 1)]
    parts += _rescaled(results, panels, len(charts) + 1)
    parts += _more(sections, len(charts) + len(panels) + 1)
    last = [tables.protocols_table(results), rates_table(results), folded(tables.runs_table(results))]
    parts += [_section(table) for table in last if table is not None]
    parts += ["## Reproduce", "The report is made from the run records alone:"]
    parts.append(_code(provenance.report_command(results)))
    if results.commands:
        parts += ["The runs were made by:", "\n".join(map(_code, results.commands))]
    parts.append(
        "\n".join(f"- {escape_markdown(k)}: {escape_markdown(v)}" for k, v in provenance.origins(results))
    )
    parts.append(_sources(provenance.SOURCES))
    settings = provenance.settings_table(results)
    if settings is not None:
        parts += [f"### {settings.title}", _table(settings), _sources(settings.sources)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _figure(index: int, chart: LineChart | TargetChart | PanelChart | HeatPanels) -> str:
    title = escape_markdown(chart.title)
    return (
        f"### Figure {index}. {title}\n\n![{title}](figures/{chart.name}.png)\n\n"
        f"{escape_markdown(chart.caption)} [CSV]({chart.name}.csv), "
        f"[SVG](figures/{chart.name}.svg), [PDF](figures/{chart.name}.pdf)"
    )


def _rescaled(results: Results, charts: Sequence[PanelChart], first: int) -> list[str]:
    """The section on rotations changed after training, its figures numbered from `first` on."""
    if not results.rescaled:
        return []
    parts = [f"## {TITLE}", escape_markdown(about(results))]
    parts += [f"> {escape_markdown(text)}" for text in findings(results)]
    parts += [_figure(i, chart) for i, chart in enumerate(charts, first)]
    return [*parts, _section(rescaled_table(results), "###")]


def _more(sections: Sequence[Section], first: int) -> list[str]:
    """The sections with figures of their own, which are numbered from `first` on."""
    parts = []
    for section in sections:
        parts += [f"## {escape_markdown(section.title)}", escape_markdown(section.about)]
        parts += [f"> {escape_markdown(text)}" for text in section.findings]
        parts += [_figure(i, chart) for i, chart in enumerate(section.charts, first)]
        parts += [_section(table, "###") for table in section.tables]
        first += len(section.charts)
    return parts


def _section(table: Table, level: str = "##") -> str:
    return (
        f"{level} {escape_markdown(table.title)}\n\n{escape_markdown(table.caption)}\n\n{_table(table)}\n\n"
        f"{_sources(table.sources)}"
    )


def _sources(names: Sequence[str]) -> str:
    return f"In full: {' and '.join(f'[{escape_markdown(name)}]({name})' for name in names)}"


def _table(table: Table) -> str:
    titles = [f"{column.group}: {column.title}" if column.group else column.title for column in table.columns]
    lines = [_line(escape_markdown(title) for title in titles)]
    lines.append(_line("---:" if column.number else "---" for column in table.columns))
    lines += [_line(_cell(cell) for cell in row) for row in table.rows]
    return "\n".join(lines)


def _line(cells: Sequence[str] | object) -> str:
    return f"| {' | '.join(cells)} |"  # type: ignore[arg-type]


def _cell(cell: Cell) -> str:
    text = escape_markdown(cell.text)
    if not cell.link:
        return text
    address = cell.link.replace("(", "%28").replace(")", "%29").replace("|", "%7C")
    return f"[{text}](<{address}>)"


def _code(text: str) -> str:
    """An indented block: no fence that the text could close."""
    return f"    {text}"
