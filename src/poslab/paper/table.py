"""The narrow table of a paper: one row per arm, chosen columns, best losses in bold, marks for tests."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from markupsafe import Markup

from poslab.analysis.estimates import estimate_columns, estimates
from poslab.analysis.results import Results
from poslab.analysis.sheets import Row
from poslab.analysis.statistics import EXPLORATORY, FALSE_ALARMS
from poslab.config.text import listing
from poslab.measures import figures
from poslab.paper.latex import escape_latex
from poslab.record.measures import name, unit
from poslab.record.reader import ReportError
from poslab.report import cells
from poslab.report.formatting import multiple as length_words
from poslab.report.formatting import quantity
from poslab.report.sections.answer import difference, ranked_rows
from poslab.report.sections.overview import arms_table
from poslab.report.tables import Cell, Column

ARM = "arm"
STAR = Markup("$^{*}$")


@dataclass(frozen=True)
class PaperTable:
    """A table for LaTeX; the cells in `blocks` already are LaTeX."""

    caption: str
    columns: tuple[Column, ...]
    blocks: tuple[tuple[str, tuple[tuple[Markup, ...], ...]], ...]  # rows under the name of each text, or ""


def choices(results: Results) -> dict[str, Column]:
    """Return the possible columns of a paper's table, by the names that columns= accepts."""
    known = {column.key: column for column in arms_table(results).columns[1:]}
    known |= {"seeds": known.pop("seeds_finished"), "rank": Column("rank", "Rank", cells.rank)}
    protocol = cells.loss_family(results)
    lengths = [k for k in results.multiples if f"{protocol}_{name(k)}" in known]
    for family, title in cells.LOSSES.items():  # both protocols, regardless of which is tested
        for k in lengths:
            key = f"{family}_{name(k)}"
            known[key] = Column(key, length_words(k), cells.loss, f"{title}, nats per token")
    against = f"Against {results.reference.arm.label}"
    known["difference"] = Column("difference", against, lambda row, key: difference(results, row))
    speed = cells.mean(lambda value, half: quantity(value))
    known["tokens_per_second"] = Column("tokens_per_second", "Tokens/s", speed)
    for figure in chain.from_iterable(figures(results.finished).values()):  # including plugins' measurements
        known.setdefault(figure, Column(figure, figure.replace("_", " "), cells.loss))
    return known


def is_loss(column: str) -> bool:
    """Return whether a column is a loss at a length, such as sliding_8x."""
    return re.fullmatch(rf"({'|'.join((*cells.LOSSES, *cells.BITS))})_[0-9.]+x", column) is not None


def paper_table(results: Results, names: Sequence[str] | None = None) -> PaperTable:
    """Return the arms by rank, with the columns of these names, or those of the report's answer.

    With several texts, return the arms on each text. Raise ReportError, which lists the possible columns,
    for an unknown column.
    """
    parts = results.texts or (results,)
    first, *rest = map(choices, parts)
    known = {name: column for name, column in first.items() if all(name in part for part in rest)}
    chosen = list(dict.fromkeys(names or _default(parts[0], known)))
    if unknown := [column for column in chosen if column not in known]:
        raise ReportError(
            f"columns={','.join(unknown)}: the paper's table has no such column; there are "
            f"{listing(list(known), len(known))}"
        )
    columns = (cells.arm_column(parts[0]), *(known[column] for column in chosen))
    blocks = tuple((part.text if results.texts else "", _rows(part, chosen)) for part in parts)
    together = " Each text is compared by itself." if results.texts else ""
    most = max(parts, key=lambda part: part.seeds)
    return PaperTable(f"{_caption(most, chosen)}{together}", columns, blocks)


def _rows(results: Results, chosen: Sequence[str]) -> tuple[tuple[Markup, ...], ...]:
    known = choices(results)
    columns = (cells.arm_column(results), *(known[column] for column in chosen))
    measured = {
        item.arm.label: estimate_columns(estimates(item.rows, chosen), chosen) for item in results.arms
    }
    records = [{**measured[str(row["arm"])], **row} for row in ranked_rows(results)]  # arms.csv overrides
    lines = [[column.show(row, column.key) for column in columns] for row in records]
    best = {
        i: _best(results, column.key, records, [row[i] for row in lines])
        for i, column in enumerate(columns)
        if is_loss(column.key)
    }
    claimed = {item.arm.label for item in results.tested if item.reading.startswith(("lower", "higher"))}
    return tuple(
        tuple(
            _latex(cell, j in best.get(i, ()), columns[i].key == "difference" and row[0].text in claimed)
            for i, cell in enumerate(row)
        )
        for j, row in enumerate(lines)
    )


def _default(results: Results, known: Mapping[str, Column]) -> list[str]:
    protocol = cells.loss_family(results)
    losses = dict.fromkeys(f"{protocol}_{name(k)}" for k in (1.0, results.tested_multiple))
    ranked = ["rank"] if results.ranks else []
    chosen = list(losses) if len(results.arms) == 1 else [*ranked, *losses, "difference"]
    return [column for column in chosen if column in known]


def _best(results: Results, key: str, records: Sequence[Row], column: Sequence[Cell]) -> set[int]:
    """Return the rows to set in bold: the lowest mean and, in the tested loss, arms not separated from it."""
    if key == results.primary and results.ranks:
        return {j for j, row in enumerate(records) if row.get("rank_best") == 1}
    if results.seeds < 2 or results.rungs is not None:
        return set()  # no winner is claimed from one seed, or over several sizes or budgets
    means = {
        j: cell.value
        for j, (row, cell) in enumerate(zip(records, column, strict=True))
        # Arms that are not tested may be scored on other targets.
        if cell.value is not None and (not results.ranks or row["arm"] in results.ranks)
    }
    return {j for j, value in means.items() if value == min(means.values())}


def _latex(cell: Cell, bold: bool, star: bool) -> Markup:
    text = Markup(escape_latex(cell.text))
    if bold:
        # Only boldmath makes mathematics such as ± bold.
        text = Markup("{\\boldmath\\bfseries ") + text + Markup("}")
    return text + STAR if star else text


def _caption(results: Results, names: Sequence[str]) -> str:
    """Return the caption: the meaning of the columns and of their intervals."""
    lengths = [column for column in names if is_loss(column)]
    units = dict.fromkeys(map(unit, lengths))
    losses = [f"Losses in {name} at the training length L and past it; lower is better." for name in units]
    ranks = cells.rank_words(results, "paired t tests with Holm's correction").strip()
    difference = (
        f"Differences are from {results.reference.arm.label} in the tested loss, paired by seed; * marks "
        f"p < {FALSE_ALARMS:g} in the paired t test with Holm's correction."
    )
    settled = "" if results.fewest_seeds >= EXPLORATORY else ": exploratory"
    fewer = "at most " if len({len(item.rows) for item in results.arms}) > 1 else ""
    sure = f"Means over {fewer}{results.seeds} seeds per arm with 95 % Student-t intervals{settled}."
    tested = ", and in the tested loss, means not separated from it" if results.primary in lengths else ""
    ranked = " among the arms that have a rank" if 0 < len(results.ranks) < len(results.arms) else ""
    has_bold = results.seeds > 1 and lengths and results.rungs is None
    sentences = (
        *losses,
        ranks if "rank" in names else "",
        difference if "difference" in names else "",
        sure if results.seeds > 1 else "One seed per arm: no interval, no winner claimed.",
        f"Bold: the lowest mean of a column{ranked}{tested}." if has_bold else "",
    )
    return " ".join(filter(None, sentences))
