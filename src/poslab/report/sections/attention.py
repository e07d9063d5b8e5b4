"""What linear attention would divide by, had its denominator been rotated too."""

from collections.abc import Iterator

from poslab.analysis.results import Results
from poslab.analysis.schemes import denominators_by_arm
from poslab.report.cells import arm_column, loss, percent
from poslab.report.tables import Column, Table


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
