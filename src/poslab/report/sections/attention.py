"""How far back the trained heads attend, on validation windows of length L."""

from poslab.record.reader import Run
from poslab.report.analysis.estimates import ArmFigures, estimate_columns
from poslab.report.analysis.results import Results
from poslab.report.analysis.statistics import Estimate, estimate
from poslab.report.cells import arm_column, half_widths, loss, rounded
from poslab.report.document import SCALE_FROM, Column, HeatPanel, HeatPanels, Rows, Sheet, Table, sheet
from poslab.report.formatting import number

FILES = ("attention_distance", "attention_distance_arms", "attention_distance_runs")
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
        panel, own = _panel(i, item)
        panels.append(panel)
        rows += own
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
        f"validation windows of length L. {even}{half_widths(results)}"
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


def _panel(arm: int, item: ArmFigures) -> tuple[HeatPanel, Rows]:
    by_run = [heads_of(run) for run in item.arm.finished]
    layers = sorted({layer for of_run in by_run for layer, _ in of_run})
    heads = sorted({head for of_run in by_run for _, head in of_run})
    cells = {
        (layer, head): estimate([of_run[layer, head] for of_run in by_run if (layer, head) in of_run])
        for layer in layers
        for head in heads
    }
    even = uniform(item.arm.context_length)
    rows: Rows = [
        {"arm": item.arm.label, "layer": layer, "head": head, **cell.row, "uniform_distance": even}
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
    by_run = [heads for run in item.arm.finished if (heads := list(heads_of(run).values()))]
    choices = {
        "mean": [sum(heads) / len(heads) for heads in by_run],
        "nearest": [min(heads) for heads in by_run],
        "farthest": [max(heads) for heads in by_run],
    }
    return estimate(choices[name])


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
    return Table(
        "attention_distance_arms",
        "Attention distance by arm",
        caption,
        columns,
        records,
        "attention_distance_arms.csv",
        by_run="attention_distance_runs.csv",
    )


def sheets(results: Results) -> dict[str, Sheet]:
    """attention_distance_arms.csv and _runs.csv; nothing where no run has it on record."""
    if not attended_arms(results):
        return {}
    return {
        "attention_distance_arms": sheet(_by_arm(results)),
        "attention_distance_runs": sheet(_by_run(results)),
    }


def _by_arm(results: Results) -> Rows:
    rows: Rows = []
    for _, item in attended_arms(results):
        length = item.arm.context_length
        rows.append({"arm": item.arm.label, "context_length": length, "seeds_finished": len(item.rows)})
        for name in FIGURES:
            rows[-1] |= estimate_columns(name, arm_figure(item, name))
        rows[-1] |= {"uniform_distance": uniform(length)}
    return rows


def _by_run(results: Results) -> Rows:
    """A row a run, layer and head, with the sums as on record."""
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
