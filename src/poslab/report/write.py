"""Records in, report out."""

import io
import sys
import textwrap
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from poslab.record.files import write_atomic, write_table
from poslab.report import sheets
from poslab.report.analysis.results import Results, gather
from poslab.report.charts import LineChart, TargetChart, line_charts, target_chart
from poslab.report.facts import facts, settings
from poslab.report.gains import gain_charts
from poslab.report.panels import panel_charts
from poslab.report.performance import performance_profile
from poslab.report.rates_words import rates_chart, rates_sheet
from poslab.report.retrieval_words import retrieval_section
from poslab.report.schemes import schemes_section
from poslab.report.tables import terminal_rows

# Every file that a report of some study may have: what an earlier report left and this one lacks is removed.
FIGURES = (
    "context_gain_by_length",
    "early_token_curse_by_length",
    "bits_per_byte_by_length",
    "loss_by_length",
    "sliding_bits_per_byte_by_length",
    "sliding_loss_by_length",
    "loss_by_position",
    "validation_loss",
    "performance_profile",
    "learning_rates",
    "tokens_to_target",
    "rescaled_bits_per_byte_by_length",
    "rescaled_loss_by_length",
    "rescaled_loss_by_position",
    *("retrieval_passkey", "retrieval_copy"),
    *("bias_by_distance", "rotation_bound", "attention_distance"),
)
TABLES = (
    *("settings", "rates", "rescaled", "rescaled_arms", "retrieval", "retrieval_arms"),
    *("wavelengths", "wavelength_pairs"),
    *("attention_distance_arms", "attention_distance_runs"),
)


@dataclass(frozen=True)
class Report:
    """A report on disk; `table` holds the rows for a terminal, by column title."""

    directory: Path
    page: Path
    table: tuple[Mapping[str, str], ...]
    summary: str


def write_report(study: str, runs: Path, reports: Path, reference: str | None = None) -> Report:
    """Make the report of `runs`/`study` in `reports`/`study` from its records alone.

    Studies with commas between their names are reported together: a,b in `reports`/a+b. The same records
    give the same bytes. `reference` names the arm that the others are compared with, over the study's own
    choice. Raises ReportError, one line that says what to do, where there is no such study, no finished run
    or no such arm.
    """
    return write(gather(study, runs, reference), reports)


def write(results: Results, reports: Path) -> Report:
    """The report of `results`, in a folder of its name in `reports`."""
    # Matplotlib takes a second to load: after everything that can be wrong with the request.
    from poslab.report.figures import draw
    from poslab.report.latex import latex
    from poslab.report.markdown import markdown
    from poslab.report.method import method
    from poslab.report.page import page
    from poslab.report.verdict import verdict

    directory = reports / results.study
    lines = [*gain_charts(results), *line_charts(results), *performance_profile(results)]
    lines += rates_chart(results)
    targets, panels = target_chart(results), panel_charts(results)
    charts: list[LineChart | TargetChart] = [*lines, *([targets] if targets is not None else [])]
    tables = {
        "summary": sheets.summary(results),
        "arms": sheets.arms(results),
        "differences": sheets.differences(results),
        "pairs": sheets.pairs(results),
        "facts": facts(results),
        "method": method(),
    }
    differing = settings(results)
    tables |= {} if differing is None else {"settings": differing}
    if results.rescaled:
        tables |= {"rescaled": sheets.rescaled(results), "rescaled_arms": sheets.rescaled_arms(results)}
    if results.tunings:
        tables["rates"] = rates_sheet(results)
    found = (retrieval_section(results), schemes_section(results))
    sections = [section for section in found if section is not None]
    for section in sections:
        tables |= section.sheets
    drawn = [*charts, *panels, *(chart for section in sections for chart in section.charts)]
    tables |= {chart.name: sheets.figure(chart.rows) for chart in drawn}
    for name, (columns, rows) in tables.items():
        write_table(directory / f"{name}.csv", columns, rows)
    for chart in drawn:
        for kind, content in draw(chart).items():
            write_atomic(directory / "figures" / f"{chart.name}.{kind}", content)
    _remove_stale(directory, tables.keys())
    write_atomic(directory / "report.md", markdown(results, charts, panels, sections))
    write_atomic(directory / "table.tex", latex(results))
    index = directory / "index.html"
    write_atomic(index, page(results, lines, targets, panels, sections))
    return Report(directory, index, tuple(terminal_rows(results)), verdict(results))


def _remove_stale(directory: Path, kept: Set[str]) -> None:
    from poslab.report.figures import FORMATS

    for name in {*FIGURES, *TABLES} - kept:
        (directory / f"{name}.csv").unlink(missing_ok=True)
        for kind in FORMATS:
            (directory / "figures" / f"{name}.{kind}").unlink(missing_ok=True)


def terminal_table(report: Report) -> Table:
    """The arms of a report as a table for the terminal: losses in nats a token, a dash where undefined.

    It fits 80 columns unless the scheme's label is long: an interval goes below its mean.
    """
    caption = Text(report.summary)
    table = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left", padding=(0, 1, 0, 0))
    for title in report.table[0]:
        side: Literal["left", "right"] = "left" if title in ("scheme", "attention") else "right"
        table.add_column(
            title.replace("loss at", "loss\nat").replace("to ", "to\n"), justify=side, no_wrap=True
        )
    for row in report.table:
        scheme = "\n".join(textwrap.wrap(row["scheme"], 18))
        rest = (value.replace(" ± ", "\n± ") for title, value in row.items() if title != "scheme")
        table.add_row(Text(scheme), *map(Text, rest))
    return table


def show(report: Report) -> None:
    """Print the table and where the page is."""
    print_table(terminal_table(report))
    print(f"report: {report.page}")


def print_table(table: Table) -> None:
    """On standard output. A narrow terminal wraps lines; it never cuts a number short."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # without ≥ its number is shown all the same
    console = Console()
    wanted = Measurement.get(console, console.options.update(max_width=1000), table).maximum
    console.width = max(console.width, min(wanted, 200))
    console.print(table)
