"""In how many tokens each pair of a query or key turns once."""

from collections.abc import Sequence

from poslab.record.measures import Value
from poslab.record.reader import Run
from poslab.report.analysis.estimates import ArmFigures
from poslab.report.analysis.results import Results
from poslab.report.analysis.statistics import Estimate, estimate
from poslab.report.cells import fewer, mean_cell
from poslab.report.formatting import DASH, number
from poslab.report.sheets import Rows, estimate_columns
from poslab.report.tables import Cell, Column, Table

FIGURES = ("pairs", "turning", "fastest", "slowest", "under_a_turn_in_L", "under_a_turn_in_longest")


def run_figures(run: Run) -> dict[str, float]:
    """A run's figures over all layers on record; nothing where it turns nothing."""
    pairs = list((run.scheme.wavelengths or {}).values())
    turning = [wavelength for wavelength in pairs if wavelength is not None]
    if not pairs:
        return {}
    longest = run.context_length * max((k for _, k in run.segments), default=1.0)
    found: dict[str, float] = {
        "pairs": len(pairs),
        "turning": len(turning),
        "under_a_turn_in_L": sum(wavelength > run.context_length for wavelength in turning),
        "under_a_turn_in_longest": sum(wavelength > longest for wavelength in turning),
    }
    return found | ({"fastest": min(turning), "slowest": max(turning)} if turning else {})


def arm_figure(item: ArmFigures, name: str) -> Estimate | None:
    """A figure over the seeds that turn anything."""
    return estimate([found[name] for run in item.arm.finished if name in (found := run_figures(run))])


def turning(results: Results) -> list[tuple[int, ArmFigures]]:
    """The arms that turn anything, with their numbers."""
    return [(i, item) for i, item in enumerate(results.arms) if any(map(run_figures, item.arm.finished))]


def wavelengths_table(results: Results) -> Table | None:
    """A row an arm that turns, or None where none does."""
    arms = turning(results)
    if not arms:
        return None
    columns = (
        Column("Arm", number=False),
        Column("Pairs"),
        Column("that turn"),
        Column("fastest", "Tokens to a turn"),
        Column("slowest", "Tokens to a turn"),
        Column("within L", "Pairs that turn less than once"),
        Column("within the longest", "Pairs that turn less than once"),
    )
    rows = tuple(
        (Cell(item.arm.label, arm=i), *(Cell(_text(item, name)) for name in FIGURES)) for i, item in arms
    )
    several = any(len({layer for layer, _ in run.scheme.wavelengths or {}}) > 1 for run in results.finished)
    caption = (
        "A pair of a query's or key's features turns once in as many tokens as its wavelength. One that "
        "turns less than once within the training length L was never seen through a whole turn and meets new "
        "angles past L; the longest is the longest length evaluated."
        + (" Pairs are counted over all layers that have rotations of their own." if several else "")
    )
    return Table(
        "wavelengths",
        "Wavelengths of the rotations",
        caption,
        columns,
        rows,
        "wavelengths.csv",
        by_run="wavelength_pairs.csv",
    )


def _text(item: ArmFigures, name: str) -> str:
    found = arm_figure(item, name)
    if found is None:
        return DASH
    if found.half_width:
        return mean_cell(found, item)
    # The same in every seed: no interval, and a count is whole.
    return (f"{found.mean:g}" if found.mean.is_integer() else number(found.mean)) + fewer(found.n, item)


def wavelengths_sheet(results: Results) -> Rows:
    """wavelengths.csv: a row an arm that turns."""
    rows: Rows = []
    for _, item in turning(results):
        row: dict[str, Value] = {"arm": item.arm.label, "context_length": item.arm.context_length}
        row["seeds_finished"] = len(item.rows)
        for name in FIGURES:
            row |= estimate_columns(name, arm_figure(item, name))
        rows.append(row)
    return rows


def pairs_sheet(results: Results) -> Rows:
    """wavelength_pairs.csv: a row a run, layer and pair; empty where the pair does not turn."""
    return [
        {
            "arm": item.arm.label,
            "run": run.name,
            "seed": run.seed,
            "layer": layer,
            "pair": pair,
            "wavelength": wavelength,
        }
        for item in results.arms
        for run in item.arm.finished
        for (layer, pair), wavelength in _sorted(run)
    ]


def _sorted(run: Run) -> Sequence[tuple[tuple[int, int], float | None]]:
    return sorted((run.scheme.wavelengths or {}).items(), key=lambda one: one[0])
