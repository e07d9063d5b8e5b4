"""RoPE's upper bound of decay, by distance (Su et al. 2021, section 3.4.3)."""

from collections.abc import Iterable
from dataclasses import replace

from poslab.measures import Measurement, Row, Trained
from poslab.measures.scheme_bias import inspected
from poslab.record.frames import DataFrame
from poslab.report.cells import bars, training_length
from poslab.report.charts import LineChart, octaves
from poslab.report.document import Section
from poslab.report.formatting import count
from poslab.report.study_tables import SCHEMES, StudyTables

SOURCE = "Su et al. 2021, section 3.4.3"
OVER = 0  # bounds are divided by the bound at this distance, in tokens


class Bound(Measurement):
    columns = "layer", "distance", "bound"  # 1 at distance 0
    order = 42
    chapter = "what"
    family = "scheme"
    axis = "distance"

    def measure(self, trained: Trained) -> Iterable[Row]:
        return trained.once(inspected).bound

    def curve(self, table: DataFrame) -> DataFrame:
        return table.assign(line="bound/layer" + table.layer.astype(str)).pivot(
            index="distance", columns="line", values="bound"
        )

    def sheet(self, table: DataFrame) -> None:
        return None

    def section(self, study: StudyTables) -> Section | None:
        table = study.table(self)
        chart = None if table is None else _chart(study, table)
        return None if chart is None else replace(SCHEMES, charts=(chart,))


def _chart(study: StudyTables, table: DataFrame) -> LineChart | None:
    """Return a chart with a line for each arm that rotates queries and keys; None if none does."""
    results = study.results
    several = (table.groupby("run").layer.nunique() > 1).any()
    means = table.groupby(["arm", "run", "distance"], sort=False).bound.mean().reset_index()
    if not (series := study.means(means, "bound")):
        return None
    caption = (
        "The upper bound on the rotated part of a logit at a distance, divided by that at distance "
        f"{OVER}: the mean over pairs of |S_j|, where S_j is the sum of exp(i t theta) over the first j "
        f"pairs ({SOURCE})"
        + ("; here the mean over layers with a bound of their own. " if several else ". ")
        + bars(results)
    )
    return LineChart(
        "rotation_bound",
        "Upper bound of decay by distance",
        caption,
        "Distance in tokens" + training_length(results),
        f"Bound, over that at distance {OVER}",
        series,
        octaves(series, count),
        None if results.context_length is None else float(results.context_length),
    )
