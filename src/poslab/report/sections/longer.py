"""Arms past their training length, against the same scheme trained there: a table and a sentence."""

from collections.abc import Sequence
from itertools import chain

from poslab.analysis.longer import Control, controls
from poslab.analysis.results import Results
from poslab.analysis.sheets import Rows, flat
from poslab.analysis.statistics import Difference, grouped
from poslab.config.text import listing
from poslab.report import cells
from poslab.report.document import Section, sheets_of
from poslab.report.formatting import count, interval, number
from poslab.report.tables import Column, Table
from poslab.report.verdict import phrases

TITLE = "Trained at the longer length"


def section(results: Results) -> Section | None:
    """Return what training at a longer length gains there, or None if no arm has such a control."""
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
    chance = "seeds and documents" if all(item.difference.documents for item in found) else "seeds"
    sure = f"95 % intervals over {chance}" if results.seeds > 1 else "One seed: no interval"
    caption = (
        "An arm past its training length, and the same scheme trained at that length on as many tokens. "
        "Losses are in nats per token in non-overlapping windows, on the same targets, paired by seed. Above "
        f"0, training at the longer length is better. {sure}, not corrected."
    )
    rows: Rows = [
        {**flat(item), "loss_mean": item.losses[0], "longer_loss_mean": item.losses[1]} for item in found
    ]
    table = Table(TITLE, caption, columns, rows, ("longer.csv",))
    return Section("longer", TITLE, findings=findings(results), tables=(table,), sheets=sheets_of(table))


def findings(results: Results) -> tuple[str, ...]:
    """Return the results of the controls in words, or on how many texts they agree; () with one seed."""
    if results.seeds < 2:
        return ()
    found = list(chain.from_iterable(map(controls, results.texts or (results,))))
    return (_on_texts(found) if results.texts else _finding(found),) if found else ()


def only_controls(results: Results) -> bool:
    """Return whether all finished arms are controls or have one, so that `findings` covers all of them."""
    pairs = [(item.arm.arm.label, item.longer.arm.label) for item in controls(results)]
    return bool(findings(results)) and {label for pair in pairs for label in pair} == {
        item.arm.label for item in results.arms if item.rows
    }


def _finding(found: Sequence[Control]) -> str:
    """Return a sentence on the arms with a higher loss than their control, a lower loss, and neither."""

    def side(gap: Difference) -> str:
        if gap.half_width is None:
            return "measured with one seed for"
        return "not separated for" if not gap.decided else "higher for" if gap.mean > 0 else "lower for"

    gaps = [(item.difference, _label(item, found)) for item in found]
    sides = (
        (side(gap), f"{label} ({interval(gap.mean, gap.half_width, 3, sign=True)})") for gap, label in gaps
    )
    parts = phrases(("higher for", "lower for", "not separated for", "measured with one seed for"), sides)
    return (
        f"At {_lengths(found)} tokens, against the same scheme trained there, the loss is {'; '.join(parts)} "
        "(95 % intervals, not corrected)."
    )


def _on_texts(found: Sequence[Control]) -> str:
    """Return a sentence on the number of texts on which each arm is above and below its control."""
    parts = []
    for arm, every in grouped((_label(item, found), item.difference) for item in found).items():
        signed = {
            "higher": [gap for gap in every if gap.mean > 0],
            "lower": [gap for gap in every if gap.mean < 0],
        }
        sides = [
            f"{side} on {len(gaps)} of {len(every)} (the interval excludes 0 on "
            f"{sum(gap.decided for gap in gaps)})"
            for side, gaps in signed.items()
            if gaps
        ]
        size = cells.span([number(mean, 2) for mean in sorted(gap.mean for gap in every)])
        parts.append(f"{arm} {' and '.join(sides)}, {size} nats")
    listed = "; ".join(parts)
    return (
        f"At {_lengths(found)} tokens, against the same scheme trained there: {listed} (95 % intervals, not "
        "corrected)."
    )


def _label(item: Control, found: Sequence[Control]) -> str:
    """Return the arm's label, with the length if several are compared."""
    several = len({control.length for control in found}) > 1
    return f"{item.arm.arm.label} at {count(item.length)}" if several else item.arm.arm.label


def _lengths(found: Sequence[Control]) -> str:
    return listing([count(length) for length in sorted({item.length for item in found})])
