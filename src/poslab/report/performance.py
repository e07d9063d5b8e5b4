"""How often each arm reaches a target within a factor of the fastest (Dolan and More 2002)."""

import math
from collections.abc import Mapping, Sequence

from poslab.record.measures import Value
from poslab.report.analysis.estimates import ArmFigures
from poslab.report.analysis.results import Results
from poslab.report.analysis.statistics import Time
from poslab.report.charts import LineChart, Point, Series

Problem = tuple[str, int]  # a target, by its suffix, and a seed
TICKS = (1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)


def performance_profile(results: Results) -> list[LineChart]:
    """The profile of the arms whose times compare, or none where there are not two of them and a target."""
    timed = [(i, item) for i, item in enumerate(results.arms) if item.times]
    found = problems([item for _, item in timed])
    if len(timed) < 2 or not found:
        return []
    factors = {i: _factors(item, [one for _, one in timed], found) for i, item in timed}
    finite = sorted({factor for mine in factors.values() for factor in mine if math.isfinite(factor)})
    if not finite:
        return []
    edge = finite[-1] if finite[-1] > 1 else 2.0
    series = tuple(
        Series(i, item.arm.label, _steps(factors[i], sorted({1.0, *finite, edge}))) for i, item in timed
    )
    seeds = len({seed for _, seed in found})
    caption = (
        f"The share of {len(found)} problems (a target at 50, 75 or 90 % of the budget of "
        f"{results.reference.arm.label}, on one of {seeds} shared seed{'s' if seeds > 1 else ''}) that an "
        "arm solves within a factor of the tokens that the fastest arm needs on that problem: at 1 how often "
        "it is the fastest, at the right how often it gets there at all. A target that a run did not reach "
        "is unsolved at every factor. Problems of one seed go together: a description, not a test."
    )
    return [
        LineChart(
            "performance_profile",
            "Performance profile of tokens to target",
            caption,
            "Factor of the fastest arm's tokens",
            "Share of problems solved",
            10,
            tuple((x, f"×{x:g}") for x in _ticks(edge)),
            None,
            series,
            stepped=True,
            frame=(0.0, 1.0),
        )
    ]


def problems(items: Sequence[ArmFigures]) -> list[Problem]:
    """Every target on every seed that all the arms have, whatever became of the runs."""
    found = [{(suffix, seed) for suffix, by_seed in item.times.items() for seed in by_seed} for item in items]
    return sorted(set.intersection(*found)) if found else []


def _factors(item: ArmFigures, items: Sequence[ArmFigures], asked: Sequence[Problem]) -> list[float]:
    """The arm's tokens over the fastest arm's on each problem, infinite where it did not get there."""
    found = []
    for suffix, seed in asked:
        fastest = min(_tokens(one.times[suffix][seed]) for one in items)
        mine = _tokens(item.times[suffix][seed])
        # Where the fastest arm had got there before its first step, no other is within a factor of it.
        factor = mine / fastest if math.isfinite(mine) and fastest > 0 else math.inf
        found.append(1.0 if mine == fastest < math.inf else factor)
    return found


def _tokens(time: Time) -> float:
    return time.tokens if time.reached else math.inf


def _steps(factors: Sequence[float], at: Sequence[float]) -> tuple[Point, ...]:
    points = []
    for x in at:
        solved = sum(factor <= x for factor in factors)
        share = solved / len(factors)
        keys: Mapping[str, Value] = {"factor": x, "solved": solved}
        points.append(Point(x, len(factors), share, None, share, share, keys))
    return tuple(points)


def _ticks(edge: float) -> tuple[float, ...]:
    """Round factors from 1 to the edge, as far apart as their labels need."""
    kept = [1.0]
    for tick in (*TICKS, float(f"{edge:.3g}")):
        if tick <= edge * 1.01 and math.log(tick / kept[-1]) >= 0.14 * math.log(edge):
            kept.append(tick)
    return tuple(kept)
