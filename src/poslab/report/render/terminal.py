"""Tables of the terminal: the arms of a report, and a model that was evaluated again."""

import io
import re
import sys
import textwrap
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from poslab.analysis.palette import COLOURS, GREY, arm_numbers, look
from poslab.config.text import plain
from poslab.record.losses import TRAINED, Segments
from poslab.record.measures import mean_loss
from poslab.record.reader import Run
from poslab.report.formatting import multiple, number

if TYPE_CHECKING:
    from poslab.report.written import Report

PROTOCOLS = {"non_overlapping": "non-overlapping", "sliding": "sliding"}  # in the order of rows
WIDTH = 18  # of a scheme's name, in letters


def terminal_table(report: "Report") -> Table:
    """The arms of a report: losses in nats a token, a dash where undefined, and the verdict below.

    It fits 80 columns unless the scheme's label is long: an interval goes below its mean.
    """
    table = _table(report.summary)
    for title in report.table[0]:
        side: Literal["left", "right"] = "left" if title in ("scheme", "attention") else "right"
        table.add_column(
            re.sub(r"(?<=sliding) |(?<=loss) |(?<=usable:) |(?<=own,) |(?<=to) ", "\n", title),
            justify=side,
            no_wrap=True,
        )
    for row, colour in zip(report.table, _colours(report), strict=True):
        scheme = "\n".join(textwrap.wrap(row["scheme"], WIDTH))
        rest = (value.replace(" ± ", "\n± ") for title, value in row.items() if title != "scheme")
        table.add_row(Text(scheme, style=colour), *map(Text, rest))
    return table


def _colours(report: "Report") -> list[str]:
    """The colour of each arm's scheme as in the figures; "" for grey, which a dark terminal would swallow."""
    # A label begins with its study where there are several, and ends with what else differs.
    schemes = [row["scheme"].rpartition(": ")[2].partition(",")[0] for row in report.table]
    arms = zip(schemes, (row["attention"] for row in report.table), strict=True)
    colours = [look(number).light for number in arm_numbers(arms)]
    return ["" if colour == COLOURS[GREY][0] else colour for colour in colours]


def evaluation_table(run: Run) -> Table:
    """Losses by length and protocol, in nats a token, a dash where there is none."""
    lines: dict[str, Segments] = {TRAINED: run.segments}
    lines |= {name: measured.segments for name, measured in run.rescaled.items()}
    lengths = sorted({k for each in lines.values() for _, k in each})
    tokens = f"{run.context_length:,} tokens"
    table = _table(f"Losses in nats a token in windows of each length, L = {tokens}; one run, so no interval")
    for title in ("scheme", "windows"):
        table.add_column(title, no_wrap=True)
    for k in lengths:
        table.add_column(multiple(k), justify="right", no_wrap=True)
    scheme = f"{run.pos} / {run.attention}"
    for name, by_length in lines.items():
        label = scheme if name == TRAINED else f"{run.pos}, {name}"
        for place, (protocol, title) in enumerate(PROTOCOLS.items()):
            losses = [mean_loss(by_length.get((protocol, k), {}).values()) for k in lengths]
            shown = "\n".join(textwrap.wrap(plain(label, 80), WIDTH)) if place == 0 else ""
            table.add_row(Text(shown), title, *map(number, losses))
    return table


def _table(caption: str) -> Table:
    return Table(box=box.SIMPLE_HEAD, caption=Text(caption), caption_justify="left", padding=(0, 1, 0, 0))


def print_table(table: Table) -> None:
    """On standard output. A narrow terminal wraps lines; it never cuts a number short."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # without ≥ its number is shown all the same
    console = Console()
    needed = Measurement.get(console, console.options.update(max_width=1000), table).maximum
    console.width = max(console.width, min(needed, 200))
    with console.capture() as captured:
        console.print(table)
    # Rich fills each line with blanks, which a file or a pipe need not have.
    lines = captured.get().splitlines()
    print(*(lines if console.is_terminal else map(str.rstrip, lines)), sep="\n")


def show(report: "Report") -> None:
    """Print the table of arms, where the page is, and where records are kept."""
    print_table(terminal_table(report))
    print(f"report: {report.page}", *report.notices, sep="\n")
