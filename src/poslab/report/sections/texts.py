"""A study on several texts: each arm's results side by side, never as a mean over texts."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from poslab.analysis.protocols import loss_at_length
from poslab.analysis.results import Results
from poslab.analysis.sheets import Row, Rows, difference_columns, sheet
from poslab.analysis.statistics import EXPLORATORY, grouped
from poslab.analysis.texts import Agreement, agreements, orders
from poslab.config.text import counted, listing
from poslab.record.measures import Value, short_unit
from poslab.report import cells
from poslab.report.charts import PanelChart
from poslab.report.document import Section
from poslab.report.formatting import number
from poslab.report.sections.extrapolation import tested_chart
from poslab.report.tables import Cell, Column, Table
from poslab.report.verdict import NAMED, context_used, not_compared, why_apart


def names(results: Results) -> dict[str, Results]:
    """Return the figures of each text, by a short name for files, columns and the terminal: `sotu`.

    A text of your own has the name of its file or folder.
    """
    sections = [text.reference.arm.finished[0].config.get("data") or {} for text in results.texts]
    named = [str(data.get("name") or data.get("path") or data.get("source")) for data in sections]
    short = [re.sub(r"\W+", "_", name.rpartition("/")[2])[:30] for name in named]
    return {
        name if short.count(name) == 1 else f"{name}_{place}": text
        for place, (name, text) in enumerate(zip(short, results.texts, strict=True), 1)
    }


def figures(results: Results) -> list[str]:
    """Return the tested figure and the loss at L, or one figure if they are the same."""
    primary = results.primary or ""
    return list(dict.fromkeys([primary, loss_at_length(results.reference, primary)]))


def sentences(results: Results) -> Iterator[str]:
    """Yield how far the texts agree: the signs and tests on each text, and the order of the arms."""
    texts = results.texts
    seeds = sorted({text.fewest_seeds for text in texts})
    exploratory = seeds[0] < EXPLORATORY
    opening = f"{counted(cells.span(seeds), 'seed')}, so exploratory: the" if exploratory else "The"
    earlier = ""
    for figure in figures(results):
        by_sides = grouped(map(_side_and_arm, agreements(texts, figure)))
        if by_sides:
            apart = _left_out(results, figure)
            parts = [f"{sides} for {listing(arms, len(arms))}" for sides, arms in by_sides.items()]
            against = f"{cells.figure_words(figure)}, against {texts[0].reference.arm.label}"
            yield f"{opening} {against}, is {'; '.join(parts)}{apart if apart != earlier else ''}."
            earlier = apart
            opening = "The"
        yield from filter(None, [_order(results, figure)])
    if same := [cells.figure_words(figure) for figure in figures(results) if _has_one_order(results, figure)]:
        every = "Both" if len(texts) == 2 else f"All {len(texts)}"
        yield f"{every} texts give the same order of means of the {' and of the '.join(same)}."
    yield f"Each of the {len(texts)} texts is taken by itself: so few are not a sample of all texts."
    if results.tested_multiple > 1 and (used := context_used(texts)):
        yield used


def _side_and_arm(item: Agreement) -> tuple[str, str]:
    """Return on how many texts an arm is higher or lower, and the arm with its differences."""
    compared, texts = len(item.means), len(item.comparisons)
    of_texts = f", compared on {compared} of {texts}," if compared < texts else ""
    size = cells.span([number(mean, 2) for mean in item.means])
    arm = f"{cells.lone_arm(item.arm)} ({size} {short_unit(item.figure)})"
    return f"{_sides(item, ' texts')}{of_texts}", arm


def _left_out(results: Results, figure: str) -> str:
    """Return the arms that are compared on none of the texts, with reasons; "" if there are none."""
    compared = {item.arm for item in agreements(results.texts, figure)}
    apart = []
    for text in results.texts:
        # An arm of another size or budget may have a difference, but it is in no agreement.
        beside = {item.arm.label for item in text.comparisons if item.figure == figure}
        apart += [
            ("another size or budget" if label in beside else why_apart(item, text, figure), label)
            for item in text.arms
            if (label := item.arm.label) not in {*compared, text.reference.arm.label}
        ]
    return not_compared(dict.fromkeys(apart))


def _sides(item: Agreement, noun: str = "") -> str:
    """Return on how many of its texts an arm is lower and higher, and how many of these are separated."""
    counts = {"lower": item.lower, "higher": sum(mean > 0 for mean in item.means)}
    sides = " and ".join(
        f"{side} on {count} of {len(item.means)}{noun} ({item.separated(side)} separated)"
        for side, count in counts.items()
        if count
    )
    return sides or "equal"


def _has_one_order(results: Results, figure: str) -> bool:
    """Return whether every two texts share two arms or more and order them in the same way."""
    found = orders(results.texts, figure)
    # Without a change, tau is below 1 if means are equal.
    return len(found) == math.comb(len(results.texts), 2) and all(order.tau == 1 for order in found)


def _order(results: Results, figure: str) -> str:
    """Return which arms change places between texts; "" if none do, or some texts do not share two arms."""
    found = orders(results.texts, figure)
    changed = dict.fromkeys(tuple(sorted(pair)) for order in found for pair in order.changed)
    if not changed or len(found) < math.comb(len(results.texts), 2):
        return ""
    pairs = [
        " changes places with ".join(pair) if i == 0 else " with ".join(pair)
        for i, pair in enumerate(changed)
    ]
    taus = cells.span([number(tau, 2) for tau in sorted(order.tau for order in found)])
    order = f"the order of means of the {cells.figure_words(figure)}"
    return f"Between texts {listing(pairs, NAMED)} in {order} (Kendall's tau {taus}, not tested)."


def chart(results: Results) -> PanelChart:
    """Return the tested loss by length, with one panel per text."""
    drawn = [(text, panel) for text in results.texts if (panel := tested_chart(text)) is not None]
    first = drawn[0][1]
    return PanelChart(
        f"{first.name}_by_text",
        f"{first.title}, text by text",
        f"{first.caption} Losses on different texts are not comparable.",
        tuple(replace(panel, title=text.text) for text, panel in drawn),
        "Arms",
        [{"text": text.text, **row} for text, panel in drawn for row in panel.rows],
    )


def rows(results: Results) -> Rows:
    """Return the rows of texts.csv: one per arm and figure, with the differences on each text."""
    found: Rows = []
    for figure in figures(results):
        for item in agreements(results.texts, figure):
            row: dict[str, Value] = {"figure": figure, "arm": item.arm}
            for name, compared in zip(names(results), item.comparisons, strict=True):
                row |= difference_columns(name, getattr(compared, "difference", None))
                row |= {f"{name}_p_holm": getattr(compared, "p_holm", None)}
                row |= {f"{name}_reading": getattr(compared, "reading", None)}
            row |= {"texts": len(item.means), "lower": item.lower, "agreement": _sides(item)}
            row |= {f"{side}_separated": item.separated(side) for side in ("lower", "higher")}
            found.append(row)
    return found


def table(results: Results) -> Table:
    """Return the table of differences from the reference, with one column per text."""

    def against(row: Row, key: str) -> Cell:
        cell, reading = cells.nats(row, key), str(row[f"{key}_reading"] or "")
        note = {"within noise": " (noise)", "descriptive": ""}.get(reading, "")
        note = ", not separated" if reading.startswith("not separated") else note
        return replace(cell, text=f"{cell.text}{note}")

    columns = (
        cells.named(cells.looks(results.texts[0])),
        cells.figure_column(),
        *(Column(name, text.text, against, "Difference") for name, text in names(results).items()),
        cells.words("agreement", "Texts"),
    )
    caption = (
        "Arm minus the reference on the same text, paired by seed, with 95 % intervals. Tests are corrected "
        "over the claims of all texts."
    )
    return Table("Answer", caption, columns, rows(results), ("texts.csv",))


def section(results: Results) -> Section:
    """Return the section on how similarly the texts order the arms."""
    found: Rows = [
        {
            "figure": figure,
            "text": order.texts[0],
            "other": order.texts[1],
            "arms": order.arms,
            "tau": order.tau,
            "changed": "; ".join(" below ".join(pair) for pair in order.changed),
        }
        for figure in figures(results)
        for order in orders(results.texts, figure)
    ]
    columns = (
        cells.figure_column(),
        cells.words("text", "Text"),
        cells.words("other", "Other text"),
        Column("tau", "Kendall's tau", cells.significant(2)),
        cells.words("changed", "Lower on the text, higher on the other"),
    )
    caption = (
        "Kendall's tau of the arms' mean losses: 1 is the same order, −1 the reverse. No interval, no test."
    )
    title = "Order of the arms, text against text"
    tables = (Table(title, caption, columns, found, ("text_orders.csv",)),) if found else ()
    return Section(
        "texts", title, tables=tables, sheets={"texts": sheet(rows(results)), "text_orders": sheet(found)}
    )


def of_text(section: Section, name: str, text: str) -> Section:
    """Return a section for one text, with the text in its titles and file names."""

    def titled(part: Any) -> Any:
        renamed: dict[str, Any] = {"title": f"{part.title}: {text}"}
        if isinstance(part, Table):
            renamed |= {"sources": tuple(f"{file.removesuffix('.csv')}_{name}.csv" for file in part.sources)}
            renamed |= {"caption": part.caption.replace("claims.csv", f"claims_{name}.csv")}
        else:
            renamed |= {"name": f"{part.name}_{name}"}
        return replace(part, **renamed)

    return replace(
        titled(section),
        charts=tuple(map(titled, section.charts)),
        tables=tuple(map(titled, section.tables)),
        sheets={f"{key}_{name}": found for key, found in section.sheets.items()},
    )
