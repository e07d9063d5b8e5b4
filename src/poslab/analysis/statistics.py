"""Student-t intervals over seeds and text, paired comparisons, times to a target and Holm's correction.

There is no bootstrap: a percentile bootstrap of three to five seeds covers about 80 % instead of 95 %.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypeVar

from scipy.special import stdtr, stdtrit

from poslab.record.measures import Value

CONFIDENCE = 0.95
CONFIDENCE_OF_BOUND = 0.99
CONFIDENCE_NEAR_BUDGET = 0.98
FALSE_ALARMS = 0.05  # alpha: how often a family of tests may find something although there is nothing
EXPLORATORY = 5  # a study with fewer seeds is called exploratory

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


def grouped(pairs: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    """Group the second item of each pair by the first, in the given order."""
    groups: dict[Key, list[Item]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, and half its 95 % interval (None for a single seed)."""

    n: int
    mean: float
    half_width: float | None
    lowest: float  # over the seeds, not the end of the interval
    highest: float

    @property
    def row(self) -> dict[str, Value]:
        """The estimate as cells of a CSV file."""
        return {field.name: getattr(self, field.name) for field in fields(Estimate)}


def estimate(values: Sequence[float]) -> Estimate | None:
    """Return the mean and Student-t interval of one value per seed, or None if there are no values."""
    if not values:
        return None
    half = None if len(values) < 2 else _half_width(values, CONFIDENCE)
    return Estimate(len(values), math.fsum(values) / len(values), half, min(values), max(values))


def _half_width(values: Sequence[float], confidence: float) -> float:
    """Return half the Student-t interval about the mean of two or more values."""
    n = len(values)
    return float(stdtrit(n - 1, (1 + confidence) / 2)) * _deviation(values) / math.sqrt(n)


def p_value(values: Sequence[float], confidence: float = CONFIDENCE, scale: float = 1.0) -> float | None:
    """Return the two-sided p value of a mean of 0, or None if the values have no spread.

    If the interval has a higher `confidence` than the 95 % that it claims, or is wider by the factor `scale`,
    p is larger accordingly: it is below 0.05 exactly if that interval excludes 0.
    """
    spread = _deviation(values)
    if spread == 0:
        return None
    n = len(values)
    t = math.fsum(values) / n / (scale * spread / math.sqrt(n))
    return min(1.0, (1 - CONFIDENCE) / (1 - confidence) * 2 * float(stdtr(n - 1, -abs(t))))


@dataclass(frozen=True)
class Variance:
    """The variance of a mean."""

    variance: float
    freedom: float  # its degrees of freedom


@dataclass(frozen=True)
class TextNoise(Variance):
    """How far other text of the same kind would change a mean difference."""

    documents: int | None  # how many were drawn; None if segments were, which may depend on one another


@dataclass(frozen=True)
class Difference:
    """Arm minus reference over the seeds that both have, and over documents if `text` is over documents."""

    n: int
    mean: float
    half_width: float | None
    p: float | None  # two-sided paired t test; None with one seed or no spread
    deviations: float | None  # mean in standard deviations of the reference over seeds; needs three seeds
    text: TextNoise | None = None

    @property
    def decided(self) -> bool:
        """Whether the 95 % interval excludes 0."""
        return self.half_width is not None and abs(self.mean) > self.half_width

    @property
    def documents(self) -> int | None:
        """How many documents add noise to the interval; None if only the seeds do."""
        return None if self.text is None else self.text.documents


def paired(
    arm: Mapping[int, float], reference: Mapping[int, float], text: TextNoise | None = None
) -> Difference | None:
    """Return the difference of two arms, each with values by seed; None if they share no seed.

    The interval is for the mean over all seeds; if `text` is over documents, over all seeds and documents.
    """
    shared = sorted(arm.keys() & reference.keys())
    differences = [arm[seed] - reference[seed] for seed in shared]
    summary = estimate(differences)
    if summary is None:
        return None
    if summary.n < 2:
        return Difference(summary.n, summary.mean, None, None, None, text)
    half, p = summary.half_width, p_value(differences)
    if text is not None and text.documents:
        half, p = _over_seeds_and_text(differences, text)
    noise = _deviation([reference[seed] for seed in shared])
    deviations = summary.mean / noise if noise > 0 and summary.n > 2 else None  # two may agree by chance
    return Difference(summary.n, summary.mean, half, p, deviations, text)


def _over_seeds_and_text(differences: Sequence[float], text: TextNoise) -> tuple[float, float | None]:
    """Return half the 95 % interval and p of a mean over seeds, all of which score the same documents.

    The variance is that over seeds plus that over documents. Both contain the interaction of seed and
    document, so the sum is too large by at most that (Owen, The Pigeonhole Bootstrap, Annals of Applied
    Statistics 2007, has the same for crossed factors). Degrees of freedom follow Satterthwaite (1946). That
    trusts two or three seeds that happen to agree, and covers only 88 % if they decide. So the interval is
    never narrower, and p never smaller, than over the seeds only (tests/analysis/test_text_noise.py).
    """
    n = len(differences)
    seeds = Variance(_deviation(differences) ** 2 / n, n - 1)
    half, p = of_variances(math.fsum(differences) / n, [seeds, text])
    if p is None:
        return half, None
    return max(half, _half_width(differences, CONFIDENCE)), max(p, p_value(differences) or 0.0)


def of_variances(mean: float, parts: Sequence[Variance]) -> tuple[float, float | None]:
    """Return half the 95 % interval and p of a mean with these variances, summed; p is None if they are 0.

    Degrees of freedom follow Satterthwaite (1946).
    """
    variance = math.fsum(part.variance for part in parts)
    if variance == 0:
        return 0.0, None
    freedom = variance**2 / math.fsum(part.variance**2 / part.freedom for part in parts)
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(variance)
    return half, 2 * float(stdtr(freedom, -abs(mean) / math.sqrt(variance)))


@dataclass(frozen=True)
class Sum:
    """A weighted sum of the means of groups that share no run, such as of the gaps at several budgets."""

    n: int  # the number of seeds in the smallest group
    mean: float
    seeds: Sequence[Variance]  # one per group with two seeds or more; empty if there is none
    text: TextNoise | None  # noise of the whole sum

    @property
    def parts(self) -> list[Variance]:
        """The variances of the sum, over seeds and documents."""
        return [*self.seeds, *([self.text] if self.text is not None and self.text.documents else [])]

    @property
    def variance(self) -> float:
        return math.fsum(part.variance for part in self.parts)

    def difference(self, *further: Variance) -> Difference:
        """Return the sum with its interval, including the variances `further`; one seed has no interval.

        It may be narrower than over the seeds only, unlike the interval of one difference: with two or more
        groups its coverage is right (dev/trends.py).
        """
        if not self.seeds:
            return Difference(self.n, self.mean, None, None, None, self.text)
        half, p = of_variances(self.mean, [*self.parts, *further])
        return Difference(self.n, self.mean, half, p, None, self.text)


def weighted_sum(groups: Sequence[tuple[float, Sequence[float]]], text: TextNoise | None) -> Sum:
    """Return the weighted sum of group means; a group is a weight and one value per seed.

    A group with one seed has the pooled variance of the others. `text` is the noise of documents in the sum.
    """
    mean = math.fsum(weight * math.fsum(values) / len(values) for weight, values in groups)
    freedom = sum(len(values) - 1 for _, values in groups)
    fewest = min(len(values) for _, values in groups)
    if not freedom:
        return Sum(fewest, mean, (), text)
    single = math.fsum(weight**2 for weight, values in groups if len(values) == 1) / freedom
    seeds = [
        Variance(
            (weight**2 / len(values) + single * (len(values) - 1)) * _deviation(values) ** 2, len(values) - 1
        )
        for weight, values in groups
        if len(values) > 1
    ]
    return Sum(fewest, mean, seeds, text)


@dataclass(frozen=True)
class Time:
    """The number of tokens that a run took to reach a target; a lower bound if it did not reach it."""

    tokens: float
    reached: bool
    limit: float = math.inf  # in tokens: a run that took longer would have been cut off


Times = Mapping[int, Time]  # by seed
Kind = Literal["exact", "at_least", "at_most", "none"]


@dataclass(frozen=True)
class Ratio:
    """The ratio of times to a target, arm over reference: a geometric mean over `n` shared seeds, or a bound.

    `exact` has a mean and, from two seeds on, an interval; `at_least` has `low`, `at_most` `high`.
    """

    n: int
    kind: Kind
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None  # p of no difference: below 0.05 exactly if the interval or bound excludes 1


def ratio(arm: Times, reference: Times) -> Ratio | None:
    """Return the ratio of times, arm over reference, on their shared seeds; None if they share no seed.

    It estimates the ratio of geometric means over all seeds, including those that the budget would cut off,
    with a Student-t interval on the logarithms of the ratios. If runs came near their budget, other seeds may
    miss the target, so the interval is then that of the ratio of one more seed: see `near_budget`.

    A run that did not reach the target enters with its whole time, so its ratio is a bound: below the true
    ratio if the arm's run is cut off, above it if the reference's is. If both have such runs there is no
    bound. No seed is dropped.

    In simulations with 0 to 60 % of the runs of either or both cut off, and either up to five times as steady
    as the other, each of the three forms is true in at least 93.5 % of the studies that print it. There are
    two limits. With two to four seeds that are all cut off, a bound rests on the spread of the reference, and
    is too sharp if that is more than ten times as steady. And if most runs are cut off, a study in which all
    times look far from the budget misleads by any rule.
    """
    shared = sorted(arm.keys() & reference.keys())
    if not shared:
        return None
    arm_times, base_times = ([times[seed] for seed in shared] for times in (arm, reference))
    cut = [not all(time.reached for time in times) for times in (arm_times, base_times)]
    if all(cut) or any(time.tokens <= 0 for time in (*arm_times, *base_times)):
        return Ratio(len(shared), "none")
    logs = [math.log(time.tokens / base.tokens) for time, base in zip(arm_times, base_times, strict=True)]
    if cut[0]:
        low, p = _bound(logs, near_budget(base_times))
        return Ratio(len(shared), "at_least", low=math.exp(low), p=p)
    if cut[1]:
        low, p = _bound([-log for log in logs], near_budget(arm_times))
        return Ratio(len(shared), "at_most", high=math.exp(-low), p=p)
    return _exact(logs, near_budget(arm_times) or near_budget(base_times))


def near_budget(times: Sequence[Time]) -> bool:
    """Return whether one more run might be cut off: the 98 % prediction interval extends past the budget.

    That is Student's t interval for one more logarithm of a time (Hahn and Meeker, Statistical Intervals,
    1991, section 4.2). True if a run was cut off; False for a single run, which shows no spread.
    """
    if not all(time.reached for time in times):
        return True
    if len(times) < 2 or any(time.tokens <= 0 for time in times):
        return False
    logs = [math.log(time.tokens) for time in times]
    furthest = math.fsum(logs) / len(logs) + half_width_of_next(logs)
    return furthest > math.log(min(time.limit for time in times))


def half_width_of_next(values: Sequence[float]) -> float:
    """Return half the 98 % Student-t prediction interval for one more value, from two or more values."""
    return math.sqrt(len(values) + 1) * _half_width(values, CONFIDENCE_NEAR_BUDGET)


def _exact(logs: Sequence[float], near: bool) -> Ratio:
    """Return the ratio for runs that were not cut off."""
    n, mean = len(logs), math.fsum(logs) / len(logs)
    if n < 2:
        return Ratio(n, "exact", math.exp(mean))
    half = half_width_of_next(logs) if near else _half_width(logs, CONFIDENCE)
    low, high = (math.exp(mean + side * half) for side in (-1, 1))
    return Ratio(n, "exact", math.exp(mean), low, high, _p_near_budget(logs) if near else p_value(logs))


def _bound(values: Sequence[float], near: bool) -> tuple[float, float | None]:
    """Return a lower bound for the mean of values, some of them too low by an unknown amount, and its p.

    Cutting values off hides their spread, so the lower end of a 95 % interval is too high too often: with two
    or three seeds, up to 8 % of the studies that print it are false. With the lower end of a 99 % interval at
    most 5 % are (tests/analysis/test_times.py). With `near`, the other arm's times may be too short as well,
    because they came near their budget.
    """
    if len(values) < 2:
        return values[0], None
    half = half_width_of_next(values) if near else _half_width(values, CONFIDENCE_OF_BOUND)
    p = _p_near_budget(values) if near else p_value(values, CONFIDENCE_OF_BOUND)
    mean = math.fsum(values) / len(values)
    return mean - half, p if mean > 0 else 1.0  # a mean of 0 or below claims nothing


def _p_near_budget(values: Sequence[float]) -> float | None:
    return p_value(values, CONFIDENCE_NEAR_BUDGET, math.sqrt(len(values) + 1))


def holm(values: Mapping[Key, float], weights: Mapping[Key, float] | None = None) -> dict[Key, float]:
    """Return adjusted p values of a family of tests by the same keys (Holm 1979; with weights, section 4).

    A test with twice the weight has twice the share of the false alarms; without weights, shares are equal.
    """
    shares = dict.fromkeys(values, 1.0) if weights is None else weights
    order = sorted(values, key=lambda key: values[key] / shares[key])  # equal tests keep their order
    adjusted, floor = {}, 0.0
    for rank, key in enumerate(order):
        left = math.fsum(shares[later] for later in order[rank:])
        floor = max(floor, min(1.0, left / shares[key] * values[key]))
        adjusted[key] = floor
    return adjusted


def normality(values: Sequence[float]) -> float | None:
    """Return the p value of normality (Shapiro and Wilk 1965); None for fewer than 5 values or no spread."""
    if len(values) < EXPLORATORY or _deviation(values) == 0:
        return None
    # The import takes half a second, so it runs only for studies with five or more seeds.
    from scipy.stats import shapiro

    return float(shapiro(values).pvalue)


def _deviation(values: Sequence[float]) -> float:
    """Return the standard deviation over seeds; one that is only rounding error counts as 0."""
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return 0.0 if deviation <= 1e-12 * max(map(abs, values)) else deviation
