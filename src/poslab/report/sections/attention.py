"""How far back the trained heads attend, on validation windows of length L."""

from collections.abc import Callable, Mapping, Sequence

from poslab.analysis.estimates import ArmFigures, estimate_columns, estimates
from poslab.analysis.results import Results
from poslab.analysis.schemes import ATTENDED, attended_cells, attended_figures, heads_of, uniform
from poslab.record.reader import Run
from poslab.report.cells import arm_column, arms, half_widths, heat_panel, loss, rounded
from poslab.report.charts import SCALE_FROM, HeatPanels
from poslab.report.formatting import number
from poslab.report.tables import Column, Row, Rows, Sheet, Table, sheet


def attended_arms(results: Results) -> list[tuple[int, ArmFigures]]:
    """The arms that it is on record for, with their numbers."""
    return [(i, item) for i, item in arms(results) if any(map(heads_of, item.arm.finished))]


def attended_heat(results: Results) -> HeatPanels | None:
    """Layers by heads, a panel an arm, or None where no run has it on record."""
    panels, rows = [], []
    for i, item in attended_arms(results):
        cells = attended_cells(item)
        even = uniform(item.arm.context_length)
        panels.append(heat_panel(i, item, cells, str, str))
        rows += [
            {"arm": item.arm.label, "layer": layer, "head": head, **cell.row, "uniform_distance": even}
            for (layer, head), cell in cells.items()
            if cell is not None
        ]
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
        rows,
    )


def attended_table(results: Results) -> Table | None:
    """A row an arm, or None where no run has it on record."""
    records = _by_arm(results)
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


def sheets(results: Results) -> dict[str, Sheet]:
    """attention_distance_arms.csv and _runs.csv; nothing where no run has it on record."""
    if not attended_arms(results):
        return {}
    return {
        "attention_distance_arms": sheet(_by_arm(results)),
        "attention_distance_runs": sheet(layer_rows(results, "head", _heads)),
    }


def _by_arm(results: Results) -> Rows:
    rows = zip(arm_rows(results, attended_figures, ATTENDED), attended_arms(results), strict=True)
    return [row | {"uniform_distance": uniform(item.arm.context_length)} for row, (_, item) in rows]


def _heads(run: Run) -> dict[tuple[int, int], Row]:
    """By layer and head: the sums as on record, and the mean."""
    return {
        key: {"queries": one.queries, "distance": one.distance, "mean_distance": one.distance / one.queries}
        for key, one in (run.scheme.attended or {}).items()
    }


def arm_rows(results: Results, figures: Callable[[Run], Mapping[str, float]], names: Sequence[str]) -> Rows:
    """A row an arm of which any run has these figures, over the seeds that have them."""
    rows: Rows = []
    for item in results.arms:
        by_seed = [of_run for run in item.arm.finished if (of_run := figures(run))]
        if by_seed:
            rows.append({"arm": item.arm.label, "context_length": item.arm.context_length})
            rows[-1]["seeds_finished"] = len(item.rows)
            rows[-1] |= estimate_columns(estimates(by_seed, names), names)
    return rows


def layer_rows(results: Results, inner: str, entries: Callable[[Run], Mapping[tuple[int, int], Row]]) -> Rows:
    """A row a run, layer and what each layer has several of: heads, or pairs of features."""
    return [
        {"arm": item.arm.label, "run": run.name, "seed": run.seed, "layer": layer, inner: number, **row}
        for item in results.arms
        for run in item.arm.finished
        for (layer, number), row in sorted(entries(run).items(), key=lambda entry: entry[0])
    ]
