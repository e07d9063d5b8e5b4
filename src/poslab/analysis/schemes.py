"""What trained schemes do: biases, bounds and wavelengths of rotations."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from poslab.analysis.curves import Point, Values, points
from poslab.analysis.estimates import estimate_columns, estimates
from poslab.analysis.results import Results
from poslab.analysis.sheets import Row, Rows, Sheet, sheet
from poslab.record.reader import Run

WAVELENGTHS = ("pairs", "turning", "fastest", "slowest", "under_a_turn_in_L", "under_a_turn_in_longest")


def biases_by_distance(runs: Sequence[Run]) -> dict[tuple[int, int], tuple[Point, ...]]:
    """Each head's bias by distance over the seeds, by layer and head."""
    heads = sorted({key for run in runs for key in run.scheme.bias or {}})
    lines = {
        key: over_seeds([_values((run.scheme.bias or {}).get(key, {}), 1) for run in runs]) for key in heads
    }
    return {key: line for key, line in lines.items() if line}


def _values(by_distance: Mapping[int, float], shift: int) -> Values:
    return {
        (float(distance + shift), (("distance", distance),)): value
        for distance, value in by_distance.items()
        if math.isfinite(value) and distance + shift > 0
    }


def over_seeds(by_seed: Sequence[Values]) -> tuple[Point, ...]:
    """Means over the seeds; what is the same in every seed, such as a fixed slope, has no interval."""
    return tuple(
        replace(point, half_width=None) if point.half_width == 0 else point for point in points(by_seed)
    )


def bound_by_distance(run: Run) -> Values:
    """The mean over the layers on record at each distance that all of them have."""
    layers = list((run.scheme.bound or {}).values())
    shared = set.intersection(*(set(layer) for layer in layers)) if layers else set()
    mean = {distance: math.fsum(layer[distance] for layer in layers) / len(layers) for distance in shared}
    return _values(mean, 0)


def wavelength_figures(run: Run) -> dict[str, float]:
    """A run's figures over all layers on record; nothing where it turns nothing."""
    pairs = list((run.scheme.wavelengths or {}).values())
    turning = [wavelength for wavelength in pairs if wavelength is not None]
    if not pairs:
        return {}
    longest = run.context_length * max((k for _, k in run.segments), default=1.0)
    counts: dict[str, float] = {
        "pairs": len(pairs),
        "turning": len(turning),
        "under_a_turn_in_L": sum(wavelength > run.context_length for wavelength in turning),
        "under_a_turn_in_longest": sum(wavelength > longest for wavelength in turning),
    }
    return counts | ({"fastest": min(turning), "slowest": max(turning)} if turning else {})


def wavelengths_by_arm(results: Results) -> Rows:
    """A row an arm that turns anything."""
    return _arm_rows(results, wavelength_figures, WAVELENGTHS)


def sheets(results: Results) -> dict[str, Sheet]:
    """The CSV files by arm and by run: those of what any arm has on record."""
    files = {
        "wavelengths": (wavelengths_by_arm(results), "wavelength_pairs", "pair", _pairs),
    }
    by_name: dict[str, Sheet] = {}
    for name, (rows, parts, inner, entries) in files.items():
        by_name |= {name: sheet(rows), parts: sheet(_layer_rows(results, inner, entries))} if rows else {}
    return by_name


def _pairs(run: Run) -> dict[tuple[int, int], Row]:
    """By layer and pair; empty where the pair does not turn."""
    return {key: {"wavelength": turn} for key, turn in (run.scheme.wavelengths or {}).items()}


def _arm_rows(results: Results, figures: Callable[[Run], Mapping[str, float]], names: Sequence[str]) -> Rows:
    """A row an arm of which any run has these figures, over the seeds that have them."""
    rows: Rows = []
    for item in results.arms:
        by_seed = [of_run for run in item.arm.finished if (of_run := figures(run))]
        if by_seed:
            rows.append({"arm": item.arm.label, "context_length": item.arm.context_length})
            rows[-1]["seeds_finished"] = len(item.rows)
            rows[-1] |= estimate_columns(estimates(by_seed, names), names)
    return rows


def _layer_rows(
    results: Results, inner: str, entries: Callable[[Run], Mapping[tuple[int, int], Row]]
) -> Rows:
    """A row a run, layer and what each layer has several of: heads, or pairs of features."""
    return [
        {"arm": item.arm.label, "run": run.name, "seed": run.seed, "layer": layer, inner: number, **row}
        for item in results.arms
        for run in item.arm.finished
        for (layer, number), row in sorted(entries(run).items(), key=lambda entry: entry[0])
    ]
