"""Arms at the length that the same scheme was trained at on as many tokens: a table and a sentence."""

from collections.abc import Sequence

from poslab.analysis.ladder import decided
from poslab.analysis.longer import Control, controls
from poslab.analysis.results import Results
from poslab.analysis.sheets import Row
from poslab.config.text import listing
from poslab.report import cells
from poslab.report.document import Section, sheets_of
from poslab.report.formatting import count, interval
from poslab.report.tables import Column, Table
from poslab.report.verdict import phrases

TITLE = "Trained at the longer length"


def section(results: Results) -> Section | None:
    """Return what training at a longer length gains there; None where no arm has such a control."""
    if not (found := controls(results)):
        return None
    columns = (
        cells.arm_column(results),
        Column("length", "Length", cells.text),
        Column("loss", "Loss there", cells.loss),
        cells.words("longer", "Trained there"),
        Column("longer_loss", "Its loss", cells.loss),
        Column("difference", "Difference", cells.nats),
    )
    sure = f"95 % intervals over {cells.chance(results)}" if results.seeds > 1 else "One seed: no interval"
    caption = (
        "An arm at a length past its own, and the same scheme trained at that length on as many tokens: nats "
        "per token in windows side by side, on the same targets, paired by seed. Above 0 the longer training "
        f"gains. {sure}, not corrected."
    )
    table = Table(TITLE, caption, columns, list(map(_row, found)), ("longer.csv",))
    return Section("longer", TITLE, findings=findings(results), tables=(table,), sheets=sheets_of(table))


def findings(results: Results) -> tuple[str, ...]:
    """Return what the controls come to in words; nothing of single seeds."""
    found = controls(results)
    return (_finding(found),) if found and results.seeds > 1 else ()


def only_controls(results: Results) -> bool:
    """Return whether every finished arm is one scheme or another at two lengths, and `findings` says all."""
    pairs = [(item.arm.arm.label, item.longer.arm.label) for item in controls(results)]
    return bool(findings(results)) and {label for pair in pairs for label in pair} == {
        item.arm.label for item in results.arms if item.rows
    }


def _row(found: Control) -> Row:
    """Return a row of longer.csv."""
    return {
        "arm": found.arm.arm.label,
        "length": found.length,
        "loss_mean": found.losses[0],
        "longer": found.longer.arm.label,
        "longer_loss_mean": found.losses[1],
        **cells.difference_columns("difference", found.difference),
    }


def _finding(found: Sequence[Control]) -> str:
    """Return a sentence on which arms lose to the longer training, which gain, and which show neither."""
    sides: dict[str, list[str]] = {"higher for": [], "lower for": [], "not separated for": []}
    several = len({item.length for item in found}) > 1
    for item in found:
        gap = item.difference
        at = f" at {count(item.length)}" if several else ""
        words = f"{item.arm.arm.label}{at} ({interval(gap.mean, gap.half_width, 3, sign=True)})"
        side = "not separated for" if not decided(gap) else "higher for" if gap.mean > 0 else "lower for"
        sides[side].append(words)
    parts = phrases(*sides.items())
    lengths = listing([count(length) for length in sorted({item.length for item in found})])
    return f"At {lengths} tokens, against the same scheme trained there, the loss is {'; '.join(parts)}."
