"""What the trained schemes do with distance: the bias added to a logit, the bound that rotation sets."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from poslab.record.measures import Value
from poslab.record.reader import Run
from poslab.report.analysis.results import Results
from poslab.report.charts import LineChart, Point, Series, Values, bars, octaves, points
from poslab.report.formatting import count
from poslab.report.panels import PanelChart
from poslab.report.style import head_number

DEPTH = 12.0  # nats under its highest bias where a head's line ends: such a key weighs e^-12 of the other
BOUND_SOURCE = "Su et al. 2021, section 3.4.3"
BOUND_OVER = 0  # the distance in tokens whose bound the others are held against
AN_OCTAVE = 12  # points of a line that are drawn, where there are more


def bias_chart(results: Results) -> PanelChart | None:
    """Bias by distance, a panel an arm and a line a head, or None where no scheme adds one."""
    drawn: list[tuple[str, list[tuple[int, tuple[Point, ...], tuple[Point, ...]]]]] = []
    rows: list[dict[str, Value]] = []
    for item in results.arms:
        heads = _heads(item.arm.finished)
        layers = sorted({layer for layer, _ in heads})
        for layer in layers:
            title = item.arm.label + (f", layer {layer}" if len(layers) > 1 else "")
            lines = [(head, found, shown(found)) for (at, head), found in heads.items() if at == layer]
            rows += [
                {"arm": item.arm.label, "layer": layer, "head": head, **point.row}
                | {"distance_plus_1": int(point.x), "drawn": point.x in kept}
                for head, found, line in lines
                for kept in [{point.x for point in line}]
                for point in found
            ]
            if layer in (layers[0], layers[-1]):
                drawn.append((title, lines))
    if not drawn:
        return None
    legend = sorted({head for _, lines in drawn for head, _, _ in lines})
    every = [Series(0, "", line) for _, lines in drawn for _, _, line in lines]
    panels = tuple(
        LineChart(
            "bias_by_distance",
            title,
            "",
            "Distance + 1 in tokens" + _length(results),
            "Bias (nats)",
            2,
            octaves(every, count),
            _mark(results),
            tuple(Series(head_number(head), f"head {head}", line) for head, _, line in lines),
        )
        for title, lines in drawn
    )
    ends = any(len(found) > len(line) for _, lines in drawn for _, found, line in lines)
    caption = (
        "What the trained scheme adds to the logit of a key at a distance, a line a head; layers that share "
        "one scheme are shown once, of others the first and the last. "
        + (f"A line ends where it falls {DEPTH:g} nats under its highest. " if ends else "")
        + ("" if len(panels) < 2 else "One scale for all arms. ")
        + bars(results)
        + _same(point for one in every for point in one.points)
    )
    return PanelChart(
        "bias_by_distance",
        "Bias by distance",
        caption,
        panels,
        tuple((head_number(head), f"head {head}") for head in legend),
        rows,
    )


def _heads(runs: Sequence[Run]) -> dict[tuple[int, int], tuple[Point, ...]]:
    """Each head's bias by distance over the seeds, by layer and head."""
    heads = sorted({key for run in runs for key in run.scheme.bias or {}})
    found = {
        key: over_seeds([_values((run.scheme.bias or {}).get(key, {}), 1) for run in runs]) for key in heads
    }
    return {key: line for key, line in found.items() if line}


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


def shown(line: Sequence[Point]) -> tuple[Point, ...]:
    """The part of a head's line that is drawn: from its highest point on to where it is DEPTH under it."""
    top = max(range(len(line)), key=lambda i: line[i].mean)
    low = line[top].mean - DEPTH
    first = next((i + 1 for i in range(top, -1, -1) if line[i].mean < low), 0)
    last = next((i for i in range(top, len(line)) if line[i].mean < low), len(line))
    return thinned(line[first:last])


def thinned(line: Sequence[Point]) -> tuple[Point, ...]:
    """A long line with no more than AN_OCTAVE points an octave, its ends among them."""
    kept: list[Point] = []
    for point in line:
        if not kept or point.x >= kept[-1].x * 2 ** (1 / AN_OCTAVE) * (1 - 1e-9):
            kept.append(point)
    if line and kept[-1] is not line[-1]:
        kept.append(line[-1])
    return tuple(kept)


def _same(drawn: Iterable[Point]) -> str:
    same = any(point.n > 1 and point.half_width is None for point in drawn)
    return " What is the same in every seed has no interval." if same else ""


def bound_chart(results: Results) -> LineChart | None:
    """The upper bound of decay of the arms that turn queries and keys, or None where none does."""
    lines = [
        Series(i, item.arm.label, thinned(over_seeds([_bound(run) for run in item.arm.finished])))
        for i, item in enumerate(results.arms)
    ]
    series = tuple(line for line in lines if line.points)
    if not series:
        return None
    several = any(len(run.scheme.bound or {}) > 1 for run in results.finished)
    caption = (
        "How large the part of a logit that rotation leaves can be at a distance, over that at distance "
        f"{BOUND_OVER}: the mean over pairs of |S_j|, S_j being the sum of the first j pairs' "
        f"exp(i t theta) ({BOUND_SOURCE})"
        + ("; the mean over layers that have one of their own. " if several else ". ")
        + bars(results)
        + _same(point for line in series for point in line.points)
    )
    return LineChart(
        "rotation_bound",
        "Upper bound of decay by distance",
        caption,
        "Distance in tokens" + _length(results),
        f"Bound, over that at distance {BOUND_OVER}",
        2,
        octaves(series, count),
        _mark(results),
        series,
    )


def _bound(run: Run) -> Values:
    """The mean over the layers on record at each distance that all of them have."""
    layers = list((run.scheme.bound or {}).values())
    shared = set.intersection(*(set(layer) for layer in layers)) if layers else set()
    mean = {distance: math.fsum(layer[distance] for layer in layers) / len(layers) for distance in shared}
    return _values(mean, 0)


def _length(results: Results) -> str:
    return "" if results.context_length is None else f" (L = {results.context_length:,})"


def _mark(results: Results) -> float | None:
    return None if results.context_length is None else float(results.context_length)
