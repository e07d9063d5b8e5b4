"""Student-t intervals over seeds, paired comparisons and Holm's correction.

No bootstrap: a percentile bootstrap of three to five seeds covers about 80 % where it says 95 %.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

CONFIDENCE = 0.95
EXPLORATORY = 5  # fewer seeds than this settle nothing


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and half its 95 % interval, which a single seed does not have."""

    n: int
    mean: float
    half_width: float | None
    lowest: float
    highest: float


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean and Student-t interval of one value a seed, or None without any value."""
    if not values:
        return None
    n, mean = len(values), math.fsum(values) / len(values)
    half = None
    if n >= 2:
        half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * _deviation(values) / math.sqrt(n)
    return Estimate(n, mean, half, min(values), max(values))


@dataclass(frozen=True)
class Difference:
    """Arm minus reference over the seeds that both have."""

    n: int
    mean: float
    half_width: float | None
    p: float | None  # two-sided paired t test; None with one seed or no spread
    deviations: float | None  # the mean in standard deviations of the reference over its seeds


def paired(arm: Mapping[int, float], reference: Mapping[int, float]) -> Difference | None:
    """Difference of two arms whose values are keyed by seed, or None where they share no seed."""
    shared = sorted(arm.keys() & reference.keys())
    differences = [arm[seed] - reference[seed] for seed in shared]
    summary = estimate(differences)
    if summary is None:
        return None
    if summary.n < 2:
        return Difference(summary.n, summary.mean, None, None, None)
    spread, noise = _deviation(differences), _deviation([reference[seed] for seed in shared])
    p = None
    if spread > 0:
        t = summary.mean / (spread / math.sqrt(summary.n))
        p = 2 * float(stdtr(summary.n - 1, -abs(t)))
    return Difference(
        summary.n, summary.mean, summary.half_width, p, summary.mean / noise if noise > 0 else None
    )


def ratio(
    arm: Mapping[int, float], reference: Mapping[int, float]
) -> tuple[int, float, float | None, float | None] | None:
    """n, geometric mean of arm / reference per shared seed, and its 95 % interval (a t-interval on logs)."""
    shared = [seed for seed in sorted(arm.keys() & reference.keys()) if arm[seed] > 0 and reference[seed] > 0]
    logs = estimate([math.log(arm[seed] / reference[seed]) for seed in shared])
    if logs is None:
        return None
    if logs.half_width is None:
        return logs.n, math.exp(logs.mean), None, None
    low, high = (math.exp(logs.mean + side * logs.half_width) for side in (-1, 1))
    return logs.n, math.exp(logs.mean), low, high


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """Holm's adjusted p values of a family of tests, by the same keys."""
    adjusted, floor = {}, 0.0
    for rank, key in enumerate(sorted(values, key=lambda key: (values[key], key))):
        floor = max(floor, min(1.0, (len(values) - rank) * values[key]))
        adjusted[key] = floor
    return adjusted


def _deviation(values: Sequence[float]) -> float:
    """The standard deviation over seeds; what is left by rounding alone counts as none."""
    deviation = float(np.std(np.asarray(values, dtype=float), ddof=1))
    return deviation if deviation > 1e-12 * max(map(abs, values)) else 0.0
