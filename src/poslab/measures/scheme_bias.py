"""The bias that the trained scheme adds to a logit, by layer, head and distance."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from poslab.analysis.curves import Point
from poslab.analysis.palette import head_number
from poslab.analysis.sheets import Rows
from poslab.config.schema import longest_length
from poslab.config.text import listing
from poslab.measures import Measurement, Row, Trained
from poslab.record.frames import DataFrame
from poslab.report.cells import bars, scale, training_length
from poslab.report.charts import LineChart, PanelChart, Series, octaves
from poslab.report.document import Section
from poslab.report.formatting import count
from poslab.report.study_tables import SCHEMES, StudyTables, over_seeds

if TYPE_CHECKING:
    from poslab.evaluation.inspection import Inspection

DEPTH = 12.0  # a head's line ends so many nats below its highest bias: such a key weighs e^-12 as much


class Bias(Measurement):
    columns = "layer", "head", "distance", "bias"  # layers that share a scheme have rows only once
    order = 40
    chapter = "what"
    family = "scheme"
    axis = "distance"

    def measure(self, trained: Trained) -> Iterable[Row]:
        return trained.once(inspected).bias

    def curve(self, table: DataFrame) -> DataFrame:
        heads = "bias/layer" + table.layer.astype(str) + "_head" + table["head"].astype(str)
        return table.assign(line=heads).pivot(index="distance", columns="line", values="bias")

    def section(self, study: StudyTables) -> Section:
        table = study.table(self)
        chart = None if table is None else _chart(study, table.dropna(subset="bias"))
        charts = () if chart is None else (chart,)
        return replace(SCHEMES, findings=_without_effect(study, table), charts=charts)


def inspected(trained: Trained) -> "Inspection":
    """Inspect the trained scheme and its attention in one pass over the validation windows."""
    from poslab.data.windows import validation_windows
    from poslab.evaluation.inspection import inspect

    config = trained.config
    windows = validation_windows(trained.corpus, config.evaluate.validation_windows, config.context_length)
    return inspect(trained.gpt, windows, longest_length(config))


def _without_effect(study: StudyTables, biases: DataFrame | None) -> tuple[str, ...]:
    """Return a sentence on the arms without a bias and without a rotation, if there are any."""
    from poslab.measures.scheme_rotation import Rotation

    tables = [(Bias.table.file, biases), (Rotation.table.file, study.table(Rotation()))]
    doing = {name for _, table in tables if table is not None for name in table.run}
    labels = [
        item.arm.label
        for item in study.results.arms
        if item.arm.finished
        and all(
            run.name not in doing and all(file in run.tables for file, _ in tables)
            for run in item.arm.finished
        )
    ]
    words = "No bias and no rotation that depends on the distance in tokens"
    return (f"{words}: {listing(labels)}.",) if labels else ()


def _chart(study: StudyTables, table: DataFrame) -> PanelChart | None:
    """Return the chart of bias by distance, with lines of heads in a panel per arm; None without a bias."""
    results = study.results
    drawn: list[tuple[str, tuple[Series, ...]]] = []
    rows: Rows = []
    for item in results.arms:
        layers: dict[int, list[Series]] = {}
        for (layer, head), of_head in table[table.arm == item.arm.label].groupby(["layer", "head"]):
            if not (whole := over_seeds(of_head, "bias", 1)):
                continue
            line = drawn_part(whole)
            layers.setdefault(layer, []).append(Series(head_number(head), f"head {head}", line))
            rows += [
                {"arm": item.arm.label, "layer": layer, "head": head, **point.row}
                | {"distance_plus_1": int(point.x), "drawn": point in line}
                for point in whole
            ]
        for layer in sorted({*[*layers][:1], *[*layers][-1:]}):
            title = item.arm.label + (f", layer {layer}" if len(layers) > 1 else "")
            drawn.append((title, tuple(layers[layer])))
    if not drawn:
        return None
    whole_chart = LineChart(
        "bias_by_distance",
        "",
        "",
        "Distance + 1 in tokens" + training_length(results),
        "Bias (nats)",
        (),
        octaves([line for _, lines in drawn for line in lines], count),
        None if results.context_length is None else float(results.context_length),
    )
    panels = tuple(replace(whole_chart, title=title, series=lines) for title, lines in drawn)
    ends = not all(row["drawn"] for row in rows)
    caption = (
        "What the trained scheme adds to the logit of a key at each distance before the query, with a line "
        "per head. Layers that share one scheme are shown once; of others, the first and the last are shown. "
        + (f"A line ends where it falls {DEPTH:g} nats below its highest point. " if ends else "")
        + scale(panels)
        + bars(results)
    )
    return PanelChart("bias_by_distance", "Bias by distance", caption, panels, "Heads", rows)


def drawn_part(line: tuple[Point, ...]) -> tuple[Point, ...]:
    """Return the part of a head's line around its highest point that is at most DEPTH nats lower."""
    top = max(range(len(line)), key=lambda i: line[i].mean)
    low = line[top].mean - DEPTH
    first = next((i + 1 for i in range(top, -1, -1) if line[i].mean < low), 0)
    last = next((i for i in range(top, len(line)) if line[i].mean < low), len(line))
    return line[first:last]
