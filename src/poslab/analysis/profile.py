"""How often an arm is the fastest to reach a target: performance profiles (Dolan and More 2002)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from poslab.analysis.curves import Point, point
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.statistics import Estimate
from poslab.record.measures import Value

Problem = tuple[str, int]  # a target's suffix and a seed


@dataclass(frozen=True)
class Profile:
    """The share of problems that each arm solves within a factor of the fastest arm's tokens."""

    problems: list[Problem]
    edge: float  # the largest factor
    solved: tuple[tuple[Point, ...], ...]  # a curve for each arm, in the arms' order


def profile(items: Sequence[ArmFigures]) -> Profile | None:
    """Return the profile of arms; None for fewer than two, or if they share no target that one reached."""
    timed = [{(suffix, seed) for suffix, by_seed in item.times.items() for seed in by_seed} for item in items]
    shared = sorted(set.intersection(*timed)) if timed else []
    if len(items) < 2 or not shared:
        return None
    times = [[item.times[suffix][seed] for suffix, seed in shared] for item in items]
    tokens = np.array([[time.tokens if time.reached else np.inf for time in of_arm] for of_arm in times])
    fastest = tokens.min(axis=0)
    # If the fastest arm was at the target before its first step, no slower arm is within a factor of it.
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = tokens / fastest
    factors[tokens == fastest] = 1.0
    factors[np.isinf(tokens)] = np.inf
    finite = np.unique(factors[np.isfinite(factors)]).tolist()
    if not finite:
        return None
    edge = finite[-1] if finite[-1] > 1 else 2.0
    places = sorted({1.0, *finite, edge})
    return Profile(shared, edge, tuple(_solved_within(of_arm, places) for of_arm in factors))


def _solved_within(factors: np.ndarray, limits: Sequence[float]) -> tuple[Point, ...]:
    """Return the share of problems that an arm with these factors solves within each of `limits`."""
    steps = []
    for x in limits:
        solved = int((factors <= x).sum())
        share = solved / len(factors)
        keys: dict[str, Value] = {"factor": x, "solved": solved}
        steps.append(point(x, Estimate(len(factors), share, None, share, share), keys))
    return tuple(steps)
