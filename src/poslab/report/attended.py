"""How far back the trained heads attend, on validation windows of length L."""

from poslab.record.measures import Value
from poslab.record.reader import Run
from poslab.report.analysis.estimates import ArmFigures
from poslab.report.analysis.results import Results
from poslab.report.analysis.statistics import Estimate, estimate
from poslab.report.cells import mean_cell
from poslab.report.formatting import number
from poslab.report.heat import SCALE_FROM, HeatPanel, HeatPanels, intervals
from poslab.report.sheets import Rows, estimate_columns
from poslab.report.tables import Cell, Column, Table

FIGURES = ("mean", "nearest", "farthest")


def uniform(length: int) -> float:
    """Mean distance in tokens of attention spread evenly, over the queries of a window's second half."""
    queries = range(length // 2, length)
    return sum(i / 2 for i in queries) / len(queries)


def heads_of(run: Run) -> dict[tuple[int, int], float]:
    """Mean distance in tokens by layer and head."""
    return {key: one.distance / one.queries for key, one in (run.scheme.attended or {}).items()}


def attended_arms(results: Results) -> list[tuple[int, ArmFigures]]:
    """The arms that it is on record for, with their numbers."""
    return [(i, item) for i, item in enumerate(results.arms) if any(map(heads_of, item.arm.finished))]


def attended_heat(results: Results) -> HeatPanels | None:
    """Layers by heads, a panel an arm, or None where no run has it on record."""
    panels, rows = [], []
    for i, item in attended_arms(results):
        panel, found = _panel(i, item)
        panels.append(panel)
        rows += found
    if not panels:
        return None
    lengths = {item.arm.context_length for _, item in attended_arms(results)}
    even = (
        f"Attention spread evenly would have a mean of {number(uniform(lengths.pop()))} tokens. "
        if len(lengths) == 1
        else "What attention spread evenly would have is in the CSV, by arm. "
    )
    caption = (
        "Mean distance in tokens that the trained heads attend to, from the queries of the second half of "
        f"validation windows of length L. {even}{intervals(results.seeds)}"
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


def _panel(arm: int, item: ArmFigures) -> tuple[HeatPanel, list[dict[str, Value]]]:
    by_run = [heads_of(run) for run in item.arm.finished]
    layers = sorted({layer for found in by_run for layer, _ in found})
    heads = sorted({head for found in by_run for _, head in found})
    cells = {
        (layer, head): estimate([found[layer, head] for found in by_run if (layer, head) in found])
        for layer in layers
        for head in heads
    }
    rows: list[dict[str, Value]] = [
        {
            "arm": item.arm.label,
            "layer": layer,
            "head": head,
            "n": cell.n,
            "mean": cell.mean,
            "half_width": cell.half_width,
            "lowest": cell.lowest,
            "highest": cell.highest,
            "uniform_distance": uniform(item.arm.context_length),
        }
        for (layer, head), cell in cells.items()
        if cell is not None
    ]
    panel = HeatPanel(
        arm,
        item.arm.label,
        len(item.rows),
        tuple(map(str, layers)),
        tuple(map(str, heads)),
        tuple(tuple(cells[layer, head] for head in heads) for layer in layers),
    )
    return panel, rows


def arm_figure(item: ArmFigures, name: str) -> Estimate | None:
    """Over the seeds: the mean over all heads, or that of each seed's nearest or farthest head."""
    by_run = [found for run in item.arm.finished if (found := list(heads_of(run).values()))]
    choices = {
        "mean": [sum(found) / len(found) for found in by_run],
        "nearest": [min(found) for found in by_run],
        "farthest": [max(found) for found in by_run],
    }
    return estimate(choices[name])


def attended_table(results: Results) -> Table | None:
    """A row an arm, or None where no run has it on record."""
    arms = attended_arms(results)
    if not arms:
        return None
    columns = (
        Column("Arm", number=False),
        Column("Mean over heads", "Tokens"),
        Column("Nearest head", "Tokens"),
        Column("Farthest head", "Tokens"),
        Column("Even attention", "Tokens"),
    )
    rows = tuple(
        (
            Cell(item.arm.label, arm=i),
            *(Cell(mean_cell(arm_figure(item, name), item)) for name in FIGURES),
            Cell(number(uniform(item.arm.context_length))),
        )
        for i, item in arms
    )
    caption = (
        "Over all layers and heads; the nearest and the farthest are those of each seed, whichever they are. "
        "Even attention is spread alike over all tokens up to the query."
    )
    return Table(
        "attention_distance_arms",
        "Attention distance by arm",
        caption,
        columns,
        rows,
        "attention_distance_arms.csv",
        by_run="attention_distance_runs.csv",
    )


def arms_sheet(results: Results) -> Rows:
    """attention_distance_arms.csv: a row an arm."""
    rows: Rows = []
    for _, item in attended_arms(results):
        length = item.arm.context_length
        row: dict[str, Value] = {"arm": item.arm.label, "context_length": length}
        row["seeds_finished"] = len(item.rows)
        for name in FIGURES:
            row |= estimate_columns(name, arm_figure(item, name))
        rows.append(row | {"uniform_distance": uniform(length)})
    return rows


def runs_sheet(results: Results) -> Rows:
    """attention_distance_runs.csv: a row a run, layer and head, with the sums as on record."""
    return [
        {
            "arm": item.arm.label,
            "run": run.name,
            "seed": run.seed,
            "layer": layer,
            "head": head,
            "queries": one.queries,
            "distance": one.distance,
            "mean_distance": one.distance / one.queries,
        }
        for item in results.arms
        for run in item.arm.finished
        for (layer, head), one in sorted((run.scheme.attended or {}).items(), key=lambda entry: entry[0])
    ]
