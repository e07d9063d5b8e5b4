"""The tokens and parameters that an arm needs for the same loss as the reference: fit 2 of a ladder.

The losses of both at several sizes N and budgets D are fitted by E + A (k_N N)^-alpha + B (k_D D)^-beta, the
law of Hoffmann et al. 2022 (arXiv:2203.15556, section 3.3) with factors k that are 1 for the reference. An
arm with k_D = 1.2 learns as much from its tokens as the reference from 1.2 times as many, so it needs 1 / k_D
of them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag
from scipy.optimize import least_squares
from scipy.special import fdtrc, stdtrit

from poslab.analysis.ladder import Ladder, Rung
from poslab.analysis.spread import FEWEST_DOCUMENTS, added_by_documents
from poslab.analysis.statistics import CONFIDENCE

FEWEST_SIZES = 4
STARTS = 8  # random starting points of the least-squares fit
HALVINGS = 10  # bisections of the step in which an interval ends
MISFIT = 0.01  # the law does not fit if the p value of its residuals, given the noise, is smaller
WIDEST = 8.0  # an interval that reaches this factor is open there
# Bounds of ln E, ln A, alpha, ln B, beta, ln k_N and ln k_D, with N and D over their geometric means.
LOWEST = np.array([-5.0, -6.0, 0.02, -6.0, 0.02, -4.0, -4.0])
HIGHEST = np.array([2.0, 2.0, 2.0, 2.0, 2.0, 4.0, 4.0])
K_N, K_D = 5, 6

Residuals = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Need:
    """An arm's need relative to the reference's for the same loss (1 is as much), with its 95 % interval."""

    factor: float | None  # None at a bound of the search
    low: float | None  # None if the losses do not determine it
    high: float | None

    @property
    def reading(self) -> str:
        """The need in words."""
        if self.low is not None and self.low > 1:
            return "more"
        return "fewer" if self.high is not None and self.high < 1 else "cannot tell"


@dataclass(frozen=True)
class Scaling:
    """The common fit of an arm and the reference to one law."""

    arm: str
    tokens: Need
    parameters: Need
    floor: float | None  # E, the loss that neither tokens nor parameters reduce; None at a bound
    alpha: float | None
    beta: float | None
    residual: float  # root mean square residual of the mean losses, in their unit
    fits: bool  # whether noise explains the residuals


def scaling(rungs: Ladder, arm: str, figure: str) -> Scaling | None:
    """Return an arm's fit over four or more sizes and two or more numbers of tokens per parameter, or None.

    None with fewer, or without noise (one seed each). The fit is by least squares on the logarithms of mean
    losses, weighted by their covariance over seeds (pooled over the rungs) and over documents (which all runs
    score). Intervals are profile intervals: a factor varies and all else is fitted again, by Student's t with
    the seeds' degrees of freedom. They are wider if the law fits worse than noise explains.
    """
    used = [rung for rung in rungs.rungs if rung.gap(arm, rungs.reference, figure) is not None]
    sizes = {rung.parameters for rung in used}
    if len(sizes) < FEWEST_SIZES or len([part for part in rungs.shares if {*part} & {*used}]) < 2:
        return None
    arms = arm, rungs.reference
    values = [_shared([rung.arms[label].by_seed(figure) for label in arms]) for rung in used]
    means = np.concatenate([losses.mean(1) for _, losses in values])
    noise = _covariance(values)
    if noise is None or means.size <= LOWEST.size or not (means > 0).all():
        return None
    covariance, freedom = noise
    covariance += _over_documents(used, arms, figure, [seeds for seeds, _ in values])
    size, budget = (
        np.repeat(np.log(values) - np.mean(np.log(values)), 2)
        for values in (
            np.array([rung.parameters for rung in used], float),
            np.array([rung.parameters * rung.share for rung in used]),
        )
    )
    is_arm = np.tile([1.0, 0.0], len(used))
    try:
        whiten = np.linalg.inv(np.linalg.cholesky(covariance / np.outer(means, means)))
    except np.linalg.LinAlgError:  # too few seeds and documents to estimate the noise of two arms
        return None

    def fitted(x: np.ndarray) -> np.ndarray:
        by_size = np.exp(x[1] - x[2] * (size + x[K_N] * is_arm))
        return np.asarray(np.exp(x[0]) + by_size + np.exp(x[3] - x[4] * (budget + x[K_D] * is_arm)))

    def residuals(x: np.ndarray) -> np.ndarray:
        return np.asarray(whiten @ np.log(fitted(x) / means))

    random = np.random.default_rng(0)
    low, high = np.array([[-1, -2, 0.1, -2, 0.1, 0, 0], [0.3, 0, 0.7, 0, 0.7, 0, 0]])
    best = min((_least(residuals, random.uniform(low, high)) for _ in range(STARTS)), key=lambda fit: fit[1])
    fit_freedom = means.size - LOWEST.size
    misfit = best[1] / fit_freedom
    allowed = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) ** 2 * max(1.0, misfit)
    residual = float(np.sqrt(np.mean((fitted(best[0]) - means) ** 2)))
    tokens, parameters = (_need(residuals, *best, index, allowed) for index in (K_D, K_N))
    floor, alpha, beta = (_inside(best[0], index) for index in (0, 2, 4))
    floor = None if floor is None else math.exp(floor)
    fits = bool(fdtrc(fit_freedom, freedom, misfit) >= MISFIT)
    return Scaling(arm, tokens, parameters, floor, alpha, beta, residual, fits)


def _inside(x: np.ndarray, index: int) -> float | None:
    """Return a parameter of the law; None if it is at a bound of the search, so not an estimate."""
    near = 1e-3 * (HIGHEST[index] - LOWEST[index])
    return float(x[index]) if LOWEST[index] + near < x[index] < HIGHEST[index] - near else None


def _shared(by_seed: Sequence[Mapping[int, float]]) -> tuple[set[int], np.ndarray]:
    """Return the seeds that both arms have, and a row of losses for each arm."""
    seeds = set.intersection(*map(set, by_seed))
    return seeds, np.array([[values[seed] for seed in sorted(seeds)] for values in by_seed])


def _covariance(values: Sequence[tuple[set[int], np.ndarray]]) -> tuple[np.ndarray, int] | None:
    """Return the mean losses' covariance over seeds (one relative noise for all rungs) and its freedom."""
    freedom = sum(losses.shape[1] - 1 for _, losses in values)
    if not freedom:
        return None
    apart = [losses / losses.mean(1, keepdims=True) - 1 for _, losses in values]
    pooled = sum(of_rung @ of_rung.T for of_rung in apart) / freedom
    means = [losses.mean(1) for _, losses in values]
    blocks = [
        pooled * np.outer(mean, mean) / losses.shape[1]
        for mean, (_, losses) in zip(means, values, strict=True)
    ]
    return np.asarray(block_diag(*blocks)), freedom


def _over_documents(
    used: Sequence[Rung], arms: tuple[str, str], figure: str, seeds: Sequence[set[int]]
) -> np.ndarray:
    """Return the covariance of the mean losses over documents; 0 if records name none, or fewer than two."""
    added = [
        added_by_documents(rung.arms[label], figure, shared)
        for rung, shared in zip(used, seeds, strict=True)
        for label in arms
    ]
    names = sorted(set.union(*map(set, added)))
    if not all(added) or len(names) < FEWEST_DOCUMENTS:
        return np.zeros((len(added), len(added)))
    text = np.array([[by_document.get(name, 0.0) for name in names] for by_document in added])
    return np.asarray(text @ text.T * len(names) / (len(names) - 1))


def _least(residuals: Residuals, start: np.ndarray, fixed: int | None = None) -> tuple[np.ndarray, float]:
    """Return the point with the least sum of squares, and that sum; parameter `fixed` does not change."""
    free = [i for i in range(start.size) if i != fixed]

    def part(x: np.ndarray) -> np.ndarray:
        whole = start.copy()
        whole[free] = x
        return residuals(whole)

    inside = np.clip(start[free], LOWEST[free] + 1e-6, HIGHEST[free] - 1e-6)
    fit = least_squares(part, inside, bounds=(LOWEST[free], HIGHEST[free]), max_nfev=400)
    end = start.copy()
    end[free] = fit.x
    return end, 2 * float(fit.cost)


def _need(residuals: Residuals, best: np.ndarray, least: float, index: int, allowed: float) -> Need:
    """Return 1 / k and its profile interval, where squares sum to at most `least + allowed`; None if open."""
    ends: list[float | None] = []
    for side in (1, -1):
        near = best

        def over(step: float, side: int = side) -> float:
            nonlocal near
            start = near.copy()
            start[index] = best[index] + side * step
            near, cost = _least(residuals, start, index)
            return cost - least - allowed

        within, beyond = 0.0, None
        for step in np.geomspace(0.02, 2 * math.log(WIDEST), 12):
            if over(step) > 0:
                beyond = step
                break
            within = step
            if side * best[index] + within > math.log(WIDEST):  # already past WIDEST, so open
                break
        if beyond is None:
            ends.append(None)
            continue
        for _ in range(HALVINGS):  # not a root finder, since a fit from another start may end elsewhere
            middle = (within + beyond) / 2
            within, beyond = (within, middle) if over(middle) > 0 else (middle, beyond)
        end = best[index] + side * beyond
        ends.append(None if abs(end) > math.log(WIDEST) else math.exp(-end))
    logarithm = _inside(best, index)
    return Need(None if logarithm is None else math.exp(-logarithm), *ends)
