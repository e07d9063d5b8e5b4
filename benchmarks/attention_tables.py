"""Print tables: ratios of time, memory, exponents and bounds. Seconds are only in attention.csv."""

from collections.abc import Callable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from attention_growth import COMPARED, FIT_FROM, RATIO_BOUNDS, Exponents, Row, missed, ratios
from attention_rounds import Omission

REFERENCE = "linear+none"  # the reference of the table of times, if it was measured


def show(
    rows: Sequence[Row], fitted: Sequence[Exponents], left_out: Sequence[str], omissions: Sequence[Omission]
) -> None:
    # A table that is piped into a file must not be folded to 80 columns.
    console = Console(highlight=False, width=None if Console().is_terminal else 120)
    labels = list(dict.fromkeys(row.pair.label for row in rows))
    reference = REFERENCE if REFERENCE in labels else labels[0]
    shares = {label: ratios(rows, label, reference) for label in labels}
    memory = {(row.pair.label, row.length): row.peak_bytes / 2**20 for row in rows}
    lengths = sorted({row.length for row in rows})
    console.print(
        _by_length(f"Time over that of {reference} at the same length", labels, lengths, _share(shares))
    )
    console.print(_by_length("Peak memory (MiB)", labels, lengths, _memory(memory)))
    if fitted:
        console.print(_exponents(fitted))
    else:
        console.print(f"No exponents: they need two lengths from {FIT_FROM:,} on.")
    if COMPARED & set(labels):
        console.print(_ratios(rows, lengths))
    for line in left_out:
        console.print(f"left out  {line}", markup=False, soft_wrap=True)
    for omission in omissions:
        console.print(
            f"left out  {omission.pair.label} at {omission.length:,}: {omission.reason}",
            markup=False,
            soft_wrap=True,
        )
    lines = missed(rows)
    for line in lines:
        console.print(f"[bold red]missed[/]  {line}", soft_wrap=True)
    if not lines:
        console.print("No measured bound is missed.")


def _by_length(
    title: str, labels: Sequence[str], lengths: Sequence[int], value: Callable[[str, int], str]
) -> Table:
    table = _table(title, "", [f"{length:,}" for length in lengths])
    for label in labels:
        table.add_row(label, *(value(label, length) for length in lengths))
    return table


def _share(shares: dict[str, dict[int, float]]) -> Callable[[str, int], str]:
    def text(label: str, length: int) -> str:
        ratio = shares[label].get(length)
        return "–" if ratio is None else f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.0f}"

    return text


def _memory(memory: dict[tuple[str, int], float]) -> Callable[[str, int], str]:
    def text(label: str, length: int) -> str:
        amount = memory.get((label, length))
        return "–" if amount is None else f"{amount:,.1f}"

    return text


def _exponents(fitted: Sequence[Exponents]) -> Table:
    table = _table(
        f"Growth: exponents of the length, from {FIT_FROM:,} on", "", ["lengths", "time", "memory"]
    )
    for fit in fitted:
        table.add_row(
            fit.pair.label,
            f"{fit.lengths[0]:,} to {fit.lengths[-1]:,}",
            _with_bound(fit.time, fit.time_bound),
            _with_bound(fit.memory, fit.memory_bound),
        )
    return table


def _with_bound(value: float, bound: float | None) -> str:
    if bound is None:
        return f"{value:.3f}         "
    return f"{value:.3f} ≤ {bound:<4g} {_mark(value <= bound)}"


def _ratios(rows: Sequence[Row], lengths: Sequence[int]) -> Table:
    table = _table("Ratios of time", "", [f"{length:,}" for length in lengths])
    for bound in RATIO_BOUNDS:
        measured = ratios(rows, bound.above, bound.below)
        cells = []
        for length in lengths:
            checked = bound.length in (None, length)
            mark = _mark(bound.holds(measured[length])) if checked and length in measured else " "
            cells.append(f"{measured[length]:.2f} {mark}" if length in measured else "–  ")
        table.add_row(bound.text, *cells)
    return table


def _mark(holds: bool) -> str:
    return "[green]✓[/]" if holds else "[bold red]✗[/]"


def _table(title: str, first: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table
