"""The denominators of linear attention's weights if they, too, were rotated."""

from collections.abc import Iterable, Iterator

from poslab.analysis.sheets import Rows
from poslab.measures import Measurement, Row, Trained
from poslab.measures.scheme_bias import inspected
from poslab.record.frames import DataFrame
from poslab.report.cells import loss, percent
from poslab.report.document import Section
from poslab.report.study_tables import SCHEMES, StudyTables
from poslab.report.tables import Column

COUNTS = ["queries", "vanished", "lowest", "weights", "negative"]


class RotatedDenominators(Measurement):
    # Counts over validation windows of length L; a rotated denominator is a query's sum of rotated weights.
    columns = (
        "layer",
        "head",
        "queries",
        "vanished",  # queries with a rotated denominator at or below 0
        "lowest",  # the lowest ratio of a rotated denominator to the plain one
        "weights",  # pairs of a query and a key up to it
        "negative",  # weights below 0
    )
    order = 44
    chapter = "what"

    def measure(self, trained: Trained) -> Iterable[Row] | None:
        return trained.once(inspected).denominators or None  # few models have linear attention that rotates

    def answer(self, study: StudyTables) -> Iterator[str]:
        """Yield, for a study of one arm, which compares no losses, how many denominators would vanish."""
        table = study.table(self) if len(study.results.arms) == 1 else None
        for row in [] if table is None else _by_arm(study, table):
            share = percent(row, "vanished_worst_layer").text
            yield (
                f"If {row['arm']} also rotated its denominators, {share} % of the queries of its worst layer "
                "would divide by a number at or below 0."
            )

    def section(self, study: StudyTables) -> Section | None:
        """Return a section with a row for each arm that has linear attention under a rotation."""
        if (table := study.table(self)) is None:
            return None
        columns = (
            Column("vanished", "All layers", percent, "At or below 0, percent"),
            Column("vanished_worst_layer", "Worst layer", percent, "At or below 0, percent"),
            Column("lowest", "Lowest over plain", loss),
            Column("negative", "Weights below 0", percent, "Percent"),
        )
        caption = "Linear attention rotates only its numerator. Here its denominator is rotated as well."
        by_arm = _by_arm(study, table)
        by_head = study.records(table[["arm", "run", "seed", "layer", "head", *COUNTS]])
        names = "rotated_denominators_arms", "rotated_denominators"
        return study.view(SCHEMES, columns, by_arm, by_head, names, "Rotated denominators", caption)


def _by_arm(study: StudyTables, table: DataFrame) -> Rows:
    """Return rotated_denominators_arms.csv: over all layers and heads, and for each run's worst layer."""
    heads = table.groupby("run")
    sums, layers = heads[COUNTS].sum(), table.groupby(["run", "layer"])[COUNTS].sum()
    worst = (layers.vanished / layers.queries).groupby("run").max()
    shares = {"vanished": sums.vanished / sums.queries, "vanished_worst_layer": worst}
    return study.by_arm(
        sums[[]].assign(**shares, lowest=heads.lowest.min(), negative=sums.negative / sums.weights)
    )
