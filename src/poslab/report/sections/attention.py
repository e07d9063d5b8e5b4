"""How far back the trained heads attend, on validation windows of length L."""

from collections.abc import Iterator

from poslab.analysis.estimates import ArmFigures
from poslab.analysis.results import Results
from poslab.analysis.schemes import (
    attended_cells,
    attended_rows,
    attention_by_arm,
    denominators_by_arm,
    heads_of,
    uniform,
)
from poslab.report.cells import arm_column, arms, half_widths, heat_panel, loss, percent, rounded
from poslab.report.charts import SCALE_FROM, HeatPanels
from poslab.report.formatting import number
from poslab.report.tables import Column, Table


def attended_arms(results: Results) -> list[tuple[int, ArmFigures]]:
    """The arms that it is on record for, with their numbers."""
    return [(i, item) for i, item in arms(results) if any(map(heads_of, item.arm.finished))]


def attended_heat(results: Results) -> HeatPanels | None:
    """Layers by heads, a panel an arm, or None where no run has it on record."""
    panels = [heat_panel(i, item, attended_cells(item), str, str) for i, item in attended_arms(results)]
    if not panels:
        return None
    even_means = {uniform(item.arm.context_length) for _, item in attended_arms(results)}
    spread = "What attention spread evenly would have is in the CSV, by arm. "
    if len(even_means) == 1:
        spread = f"Attention spread evenly would have a mean of {number(even_means.pop())} tokens. "
    caption = (
        "Mean distance in tokens that the trained heads attend to, from the queries of the second half of "
        f"validation windows of length L. {spread}{half_widths(results)}"
    )
    return HeatPanels(
        "attention_distance",
        "Attention distance by layer and head",
        caption,
        "Layer",
        "Head",
        "Tokens",
        SCALE_FROM,
        max(cell.mean for panel in panels for cell, _, _ in panel.known),
        False,
        tuple(panels),
        [row for _, item in attended_arms(results) for row in attended_rows(item)],
    )


def attended_table(results: Results) -> Table | None:
    """A row an arm, or None where no run has it on record."""
    records = attention_by_arm(results)
    if not records:
        return None
    columns = (
        arm_column(results),
        Column("mean", "Mean over heads", loss, "Tokens"),
        Column("nearest", "Nearest head", loss, "Tokens"),
        Column("farthest", "Farthest head", loss, "Tokens"),
        Column("uniform_distance", "Even attention", rounded(number), "Tokens"),
    )
    caption = (
        "Over all layers and heads; the nearest and the farthest are those of each seed, whichever they are. "
        "Even attention is spread alike over all tokens up to the query."
    )
    sources = "attention_distance_arms.csv", "attention_distance_runs.csv"
    return Table("Attention distance by arm", caption, columns, records, sources)


def denominators(results: Results) -> Table | None:
    """A row an arm, or None where no linear attention stands under a rotation."""
    columns = (
        arm_column(results),
        Column("vanished", "All layers", percent, "At or below 0, percent"),
        Column("vanished_worst_layer", "Worst layer", percent, "At or below 0, percent"),
        Column("lowest", "Lowest over plain", loss),
        Column("negative", "Weights below 0", percent, "Percent"),
    )
    caption = "Linear attention rotates its numerator alone: what would be if its denominator turned, too."
    sources = "rotated_denominators_arms.csv", "rotated_denominators.csv"
    records = denominators_by_arm(results)
    return Table("Rotated denominators", caption, columns, records, sources) if records else None


def denominators_in_short(results: Results) -> Iterator[str]:
    """Of a study of one arm, which compares no losses: whether its denominators would vanish."""
    records = denominators_by_arm(results) if len(results.arms) == 1 else []
    for row in records:
        share = percent(row, "vanished_worst_layer").text
        yield (
            f"If {row['arm']} rotated its denominators, too, {share} % of the queries of its worst layer "
            "would divide by a number at or below 0."
        )
