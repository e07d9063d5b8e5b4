"""How often an arm is the fastest to a target: performance profiles (Dolan and More 2002)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from poslab.analysis.curves import Point, point
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.statistics import Estimate, Time
from poslab.record.measures import Value

Problem = tuple[str, int]  # a target, by its suffix, and a seed


def problems(items: Sequence[ArmFigures]) -> list[Problem]:
    """Return every target on every seed that all the arms have, however the runs ended."""
    tried = [{(suffix, seed) for suffix, by_seed in item.times.items() for seed in by_seed} for item in items]
    return sorted(set.intersection(*tried)) if tried else []


def factors(item: ArmFigures, items: Sequence[ArmFigures], solvable: Sequence[Problem]) -> list[float]:
    """Return the arm's tokens over the fastest arm's on each problem, infinite where it did not get there."""
    over = []
    for suffix, seed in solvable:
        fastest = min(_tokens(rival.times[suffix][seed]) for rival in items)
        tokens = _tokens(item.times[suffix][seed])
        # Where the fastest arm had got there before its first step, no other is within a factor of it.
        factor = tokens / fastest if math.isfinite(tokens) and fastest > 0 else math.inf
        over.append(1.0 if tokens == fastest < math.inf else factor)
    return over


def _tokens(time: Time) -> float:
    return time.tokens if time.reached else math.inf


def solved_within(factors: Sequence[float], at: Sequence[float]) -> tuple[Point, ...]:
    """Return the share of the problems that an arm with these factors solves within each of `at`."""
    steps = []
    for x in at:
        solved = sum(factor <= x for factor in factors)
        share = solved / len(factors)
        keys: dict[str, Value] = {"factor": x, "solved": solved}
        steps.append(point(x, Estimate(len(factors), share, None, share, share), keys))
    return tuple(steps)


@dataclass(frozen=True)
class Profile:
    """The share of the problems that each arm solves, by the factor of the fastest arm's tokens."""

    problems: list[Problem]
    edge: float  # the largest factor
    solved: tuple[tuple[Point, ...], ...]  # of each arm, in their order


def profile(items: Sequence[ArmFigures]) -> Profile | None:
    """Return the profile of two arms or more; None without a shared target that one of them reached."""
    solvable = problems(items)
    if len(items) < 2 or not solvable:
        return None
    over = [factors(item, items, solvable) for item in items]
    finite = sorted({factor for arm_factors in over for factor in arm_factors if math.isfinite(factor)})
    if not finite:
        return None
    edge = finite[-1] if finite[-1] > 1 else 2.0
    places = sorted({1.0, *finite, edge})
    return Profile(solvable, edge, tuple(solved_within(arm_factors, places) for arm_factors in over))
