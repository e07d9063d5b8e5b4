"""Attention distance: how far each head of the trained model attends, on validation windows of length L."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from poslab.analysis.sheets import Rows
from poslab.config.text import listing
from poslab.measures import Measurement, Row, Trained
from poslab.measures.scheme_bias import inspected
from poslab.objectives import recorded_objective
from poslab.record.frames import DataFrame
from poslab.report.cells import half_widths, loss, rounded
from poslab.report.charts import HeatPanels
from poslab.report.document import Section
from poslab.report.formatting import number
from poslab.report.study_tables import SCHEMES, StudyTables
from poslab.report.tables import Column


class AttentionDistance(Measurement):
    columns = "layer", "head", "queries", "distance"  # in tokens, summed over the queries
    order = 43
    chapter = "what"
    axis = "layer"

    def measure(self, trained: Trained) -> Iterable[Row]:
        return trained.once(inspected).attention_distance

    def curve(self, table: DataFrame) -> DataFrame:
        return _heads(table).groupby("layer").mean_distance.agg(mean="mean", least="min", most="max")

    def sheet(self, table: DataFrame) -> DataFrame:
        heads = _heads(table)
        return heads.assign(distance=heads.mean_distance)[["layer", "head", "distance"]]

    def section(self, study: StudyTables) -> Section:
        table = study.table(self)
        recorded = set() if table is None else {*table.run}
        without = [
            item.arm.label
            for item in study.results.arms
            if any(self.table.file in run.tables and run.name not in recorded for run in item.arm.finished)
        ]
        noted = f"No attention distance, since the mixer has no matrix of weights: {listing(without)}."
        findings = (noted,) if without else ()
        if table is None or (heads := _heads(table)).empty:
            return replace(SCHEMES, findings=findings)
        by_arm = _by_arm(study, heads)
        columns = (
            Column("mean", "Mean over heads", loss, "Tokens"),
            Column("nearest", "Nearest head", loss, "Tokens"),
            Column("farthest", "Farthest head", loss, "Tokens"),
            Column("uniform_distance", "Even attention", rounded(number), "Tokens"),
        )
        caption = (
            "Over all layers and heads. The nearest and the farthest head are chosen in each seed, and may "
            "differ between seeds. Even attention is spread equally over all tokens that a query sees."
        )
        by_head = ["arm", "run", "seed", "layer", "head", "queries", "distance", "mean_distance"]
        by_run = study.records(heads[by_head])
        names = "attention_distance_arms", "attention_distance_runs"
        section = replace(SCHEMES, findings=findings, charts=(_heat(study, heads),))
        return study.view(section, columns, by_arm, by_run, names, "Attention distance by arm", caption)


def _heads(table: DataFrame) -> DataFrame:
    """Return the rows of heads that attend to anything, with their mean distance in tokens."""
    means = table.distance / table.queries.where(table.queries > 0)
    return table.assign(mean_distance=means).dropna(subset="mean_distance")


def uniform(length: int, causal: bool = True) -> float:
    """Return evenly spread attention's mean distance in tokens, for queries in a window's second half."""
    queries = range(length // 2, length)
    if causal:
        return sum(i / 2 for i in queries) / len(queries)
    return sum(abs(i - j) for i in queries for j in range(length)) / len(queries) / length


def _even(study: StudyTables) -> dict[str, float | None]:
    """Return evenly spread attention's mean distance by arm; None if a layer attends only within a window."""
    even: dict[str, float | None] = {}
    for item in study.results.arms:
        for run in item.arm.finished[:1]:
            objective = recorded_objective(run.config)
            causal = objective is None or objective.causal
            windowed = _has_window(run.config.get("pos"))
            even[item.arm.label] = None if windowed else uniform(item.arm.context_length, causal)
    return even


def _has_window(section: Any) -> bool:
    if isinstance(section, dict):
        return section.get("window") is not None or any(map(_has_window, section.values()))
    return False


def _by_arm(study: StudyTables, heads: DataFrame) -> Rows:
    """Return attention_distance_arms.csv: a row per arm."""
    even = _even(study)
    distances = heads.groupby("run").mean_distance
    rows = study.by_arm(distances.agg(mean="mean", nearest="min", farthest="max"))
    return [row | {"uniform_distance": even[str(row["arm"])]} for row in rows]


def _heat(study: StudyTables, heads: DataFrame) -> HeatPanels:
    """Return the chart of mean distances by layer and head, with a panel per arm."""
    even = _even(study)
    values = heads.set_index(["arm", "layer", "head"]).mean_distance
    means = {even[arm] for arm in values.index.unique("arm")}
    spread = "The mean of evenly spread attention is in the CSV, by arm. "
    if len(means) == 1 and None not in means:
        spread = f"Attention spread evenly would have a mean of {number(means.pop())} tokens. "
    caption = (
        "Mean distance, in tokens, at which the trained heads attend, for queries in the second half of "
        f"validation windows of length L. {spread}{half_widths(study.results)}"
    )
    words = "attention_distance", "Attention distance by layer and head", caption
    axes = "Layer", "Head", "Tokens"
    return study.heat(
        words, axes, values, (str, str), False, lambda place: {"uniform_distance": even[place[0]]}
    )
