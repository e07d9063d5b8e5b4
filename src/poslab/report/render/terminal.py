"""Tables for the terminal: the arms of a report, and a model that was evaluated again."""

import csv
import io
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from poslab.analysis.palette import COLOURS, GREY, look
from poslab.config.text import listing, plain
from poslab.record.losses import TRAINED, Segments
from poslab.record.measures import mean_loss
from poslab.record.reader import Run
from poslab.report.formatting import multiple, number, share
from poslab.report.held_out import HELD_OUT, held_out

if TYPE_CHECKING:
    from poslab.report.document import Document
    from poslab.report.write import Report

PROTOCOLS = {"non_overlapping": "non-overlapping", "sliding": "sliding"}  # in the order of rows
WIDEST, LEAST = 18, 8  # largest and smallest width of the column of schemes
LEFT_OUT = ("to target", "4 L", "2 L", "usable: own, fixed")  # columns to drop in a narrow terminal, in order
NARROWEST = 40  # columns that every terminal is assumed to have
NOTES = {  # the meaning of columns, by title
    "usable: own, fixed": "Usable: the longest tested length, in tokens, with a sliding loss within 5 % of "
    "the arm's own at L (own) or of the reference's at L (fixed).",
    "to target": "To target: training tokens until the reference's loss at 75 % of its budget.",
}


def terminal_table(document: "Document", width: int) -> Table:
    """Return the arms of a report for a terminal `width` columns wide, with losses in nats per token.

    An undefined value is a dash; an interval is below its mean. If the columns do not fit, drop those of
    `LEFT_OUT` in turn. The caption names what was dropped, before the answer.
    """
    titles = [column.title for column in document.terminal.columns]
    out = [title for title in LEFT_OUT if title in titles]
    table = _table_without(document, ())
    for n in range(1, len(out) + 1):
        if needed(table) > width:
            table = _table_without(document, out[:n])
    return _narrowed(table, width)


def _table_without(document: "Document", out: Sequence[str]) -> Table:
    """Return the table without the columns titled `out`, which its caption names."""
    lines = [f"Only on the page, for lack of room: {listing(list(out))}."] if out else []
    columns = [column for column in document.terminal.columns if column.title not in out]
    lines += [NOTES[column.title] for column in columns if column.title in NOTES]
    table = _table("\n".join([*lines, "", document.summary]).lstrip("\n"))
    table.title, table.title_justify, table.title_style = Text(document.title), "left", "bold"
    for column in columns:
        head = re.sub(
            r"(?<=sliding) |(?<=loss) |(?<=usable:) |(?<=own,) |(?<=to) |(?<=byte) ", "\n", column.title
        )
        side: Literal["left", "right"] = "right" if column.number else "left"
        table.add_column(head, justify=side, no_wrap=column is not columns[0], overflow="fold")
    table.columns[0].max_width = WIDEST
    for row in document.terminal.records:
        cells = [column.show(row, column.key) for column in columns]
        table.add_row(*(Text(cell.text.replace(" ± ", "\n± "), style=_colour(cell.arm)) for cell in cells))
    return table


def _colour(number: int | None) -> str:
    """Return the colour of the look with this number, or "" for grey, which is hard to read on dark."""
    colour = "" if number is None else look(number).light
    return "" if colour == COLOURS[GREY][0] else colour


def evaluation_table(run: Run, width: int) -> Table:
    """Return the losses of a run by length and protocol, in nats per token; a dash marks a missing loss.

    The terminal is `width` columns wide. For a task, return the share of exact answers by size.
    """
    if not run.has_text:
        return _task_table(run)
    lines: dict[str, Segments] = {TRAINED: run.segments}
    lines |= {name: measured.segments for name, measured in run.rescaled.items()}
    lengths = sorted({k for segments in lines.values() for _, k in segments})
    tokens = f"{run.context_length:,} tokens"
    scored = "".join(f"\n{HELD_OUT}: {text}." for text in held_out([run]))
    table = _table(
        f"Losses in nats per token by window length, L = {tokens}; one run, so no intervals.{scored}"
    )
    table.add_column("scheme", overflow="fold", max_width=WIDEST)
    table.add_column("windows", no_wrap=True)
    for k in lengths:
        table.add_column(multiple(k), justify="right", no_wrap=True)
    scheme = f"{run.pos} / {run.attention}"
    for name, by_length in lines.items():
        label = scheme if name == TRAINED else f"{run.pos}, {name}"
        for place, (protocol, title) in enumerate(PROTOCOLS.items()):
            losses = [mean_loss(by_length.get((protocol, k), {}).values()) for k in lengths]
            table.add_row(Text(plain(label, 80) if place == 0 else ""), title, *map(number, losses))
    return _narrowed(table, width)


def _task_table(run: Run) -> Table:
    table = _table(f"{run.pos} / {run.attention}: exact answers by sample size; one run, so no intervals")
    table.add_column("size", justify="right")
    table.add_column("exact, %", justify="right")
    for row in csv.DictReader(io.StringIO(run.tables["task.csv"].decode())):
        table.add_row(row["size"], share(int(row["exact"]) / int(row["samples"])))
    return table


def _table(caption: str) -> Table:
    return Table(box=box.SIMPLE_HEAD, caption=Text(caption), caption_justify="left", padding=(0, 1, 0, 0))


def _narrowed(table: Table, width: int) -> Table:
    """Narrow the column of schemes if the table is wider than `width` columns."""
    table.columns[0].max_width = max(LEAST, WIDEST - max(0, needed(table) - width))
    return table


def needed(table: Table) -> int:
    """Return how many terminal columns the table needs without wrapping its cells."""
    console = Console(width=1000)
    return Measurement.get(console, console.options, table).maximum


def terminal_width() -> int:
    """Return the width of the terminal, or COLUMNS if that is set, or 80 if there is no terminal."""
    return max(Console().width, NARROWEST)


def print_table(table: Table) -> None:
    """Print the table. If it is wider than the terminal, lines wrap and numbers are not cut off."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # if ≥ cannot be encoded, print its code
    console = Console()
    console.width = max(terminal_width(), needed(table))
    with console.capture() as captured:
        console.print(table)
    # Rich pads each line with spaces, which files and pipes do not need.
    lines = captured.get().splitlines()
    print(*(lines if console.is_terminal else map(str.rstrip, lines)), sep="\n")


def show(report: "Report") -> None:
    """Print the table of arms, and the location of the page and of the archived records."""
    width = terminal_width()
    print_table(terminal_table(report.document, width))
    # Do not break paths, so that they can be copied.
    for line in (f"report: {report.page}", *report.notices):
        print(textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False))
