"""Printed ratios of times to target are true, though runs are cut off at a budget.

Times are log-normal, paired by seed, with correlated or independent logarithms. A study prints one of three
forms: an interval, "at least" or "at most". Coverage is checked for each form in the studies that print it,
since over all studies the quick ones, in which every run reached the target, would hide the others.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import ndtri

from poslab.analysis.statistics import Ratio, Time, estimate, ratio
from support.pairwise import pairwise

PROMISED = 0.935  # share of the studies that print a form in which it is true
DRAWN = 30_000  # studies per case, of which this many of each form are judged:
JUDGED = 250
FEWEST = 100  # a form that fewer studies print is not judged
SPREAD = 0.1  # of log times, on the side with the larger spread
EFFECT = 0.2  # log of the true ratio

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Population:
    """Seeds of an arm and of the reference: their spreads, and the share of each that is cut off."""

    cut_arm: float
    cut_reference: float
    steady_arm: float = 1.0  # times SPREAD
    steady_reference: float = 1.0
    correlation: float = 0.0

    def draw(self, n: int, studies: int = DRAWN) -> tuple[Array, Array, float, float]:
        """Return log times of arm and reference, a row for each study with n seeds, and both log budgets."""
        random = np.random.default_rng([n, round(1000 * self.cut_arm), round(1000 * self.cut_reference)])
        shared, *noises = random.standard_normal((3, studies, n))
        arm, reference = (
            math.sqrt(self.correlation) * shared + math.sqrt(1 - self.correlation) * own for own in noises
        )
        spreads = SPREAD * self.steady_arm, SPREAD * self.steady_reference
        budget, other = (
            spread * float(ndtri(1 - cut)) if cut else math.inf
            for spread, cut in zip(spreads, (self.cut_arm, self.cut_reference), strict=True)
        )
        return EFFECT + spreads[0] * arm, spreads[1] * reference, EFFECT + budget, other


def timed(logs: Array, budget: float) -> dict[int, Time]:
    limit = math.exp(budget)
    return {
        i: Time(min(math.exp(log), limit), log <= budget, limit) for i, log in enumerate(map(float, logs))
    }


def found(arm: Array, reference: Array, budget: float, other: float) -> Ratio:
    result = ratio(timed(arm, budget), timed(reference, other))
    assert result is not None
    return result


def true(result: Ratio) -> bool:
    """Return whether the printed form contains the true ratio."""
    return (result.low or 0.0) <= math.exp(EFFECT) <= (result.high or math.inf)


def coverage(
    population: Population, n: int, judged: int = JUDGED, studies: int = DRAWN
) -> dict[str, tuple[float, int]]:
    """Return by printed form the share of its studies in which it is true, and their number."""
    arm, reference, budget, other = population.draw(n, studies)
    missed, missed_other = (arm > budget).any(axis=1), (reference > other).any(axis=1)
    forms = {
        "exact": ~missed & ~missed_other,
        "at_least": missed & ~missed_other,
        "at_most": ~missed & missed_other,
    }
    shares = {}
    for form, printed in forms.items():
        places = np.flatnonzero(printed)[:judged]
        ratios = [found(arm[i], reference[i], budget, other) for i in places]
        assert {item.kind for item in ratios} <= {form}
        if len(ratios) >= FEWEST:
            shares[form] = sum(map(true, ratios)) / len(ratios), len(ratios)
    return shares


STEADY = [(1.0, 1.0, 0.0), (1.0, 0.2, 0.0), (0.2, 1.0, 0.6), (1.0, 0.2, 0.6)]
CUT = [(0.05, 0.0), (0.3, 0.0), (0.45, 0.0), (0.6, 0.0), (0.0, 0.2), (0.0, 0.6), (0.1, 0.6), (0.45, 0.45)]


@pairwise("n, cut_arm, cut_reference, steady_arm, steady_reference, correlation", [3, 5, 10], CUT, STEADY)
def test_each_printed_form_is_true_as_often_as_promised(
    n, cut_arm, cut_reference, steady_arm, steady_reference, correlation
):
    """With 5 to 60 % of the runs of either side or both cut off, and with one side five times as steady."""
    population = Population(cut_arm, cut_reference, steady_arm, steady_reference, correlation)
    for form, (share, judged) in coverage(population, n).items():
        slack = 2.5 * math.sqrt(PROMISED * (1 - PROMISED) / judged)
        assert share >= PROMISED - slack, (form, share, judged)


@pytest.mark.parametrize("n", [2, 3])
def test_a_bound_is_true_though_cut_off_runs_hide_their_spread(n):
    """The hardest case for a bound: few seeds, one run in five cut off, a reference with little spread."""
    share, judged = coverage(Population(0.2, 0.0, steady_reference=0.2), n, 6000)["at_least"]
    assert judged == 6000
    assert share >= PROMISED


@pytest.mark.parametrize("n", [3, 10])
def test_far_from_the_budget_it_is_the_t_interval(n):
    arm, reference, _, _ = Population(0.0, 0.0).draw(n)
    true_ones = 0
    for logs, base in zip(arm[:1500], reference[:1500], strict=True):
        far = 1 + float(max(logs.max(), base.max())) + 100 * SPREAD
        result, plain = found(logs, base, far, far), estimate([float(log) for log in logs - base])
        assert (result.low, result.high) == pytest.approx(
            (math.exp(plain.mean - plain.half_width), math.exp(plain.mean + plain.half_width))
        )
        true_ones += true(result)
    assert true_ones / 1500 == pytest.approx(0.95, abs=0.017)


def test_if_a_further_run_might_be_cut_off_the_interval_is_the_prediction_interval():
    """For log times 0, ±0.1, ±0.2 the 98 % prediction interval ends 0.65 above their mean, by hand."""
    steps = [-0.2, -0.1, 0.0, 0.1, 0.2]
    quantile, deviation = 3.747, math.sqrt(0.1 / 4)  # Student's t, 4 degrees of freedom, at 0.99; these times
    end = quantile * deviation * math.sqrt(1 + 1 / 5)
    assert end == pytest.approx(0.649, abs=0.001)

    def over(budget: float, turned: bool = False) -> Ratio:
        times = {i: Time(math.exp(step), True, math.exp(budget)) for i, step in enumerate(steps)}
        steady = {i: Time(1.0, True, math.exp(9.0)) for i in range(5)}
        result = ratio(steady, times) if turned else ratio(times, steady)
        assert result is not None
        return result

    half = 2.776 * deviation / math.sqrt(5)
    assert over(0.66).high == pytest.approx(math.exp(half), abs=0.001)
    for turned in (False, True):  # also if the reference came near to its budget
        near = over(0.64, turned)
        assert (near.low, near.high) == pytest.approx((math.exp(-end), math.exp(end)), abs=0.001)
        assert near.mean == pytest.approx(1.0)


def test_p_is_under_five_percent_if_the_interval_or_the_bound_excludes_one():
    """In each form, near the budget and far from it."""
    counts = {True: 0, False: 0}
    for cut_arm, cut_reference in [(0.0, 0.0), (0.1, 0.0), (0.45, 0.0), (0.0, 0.3), (0.1, 0.3)]:
        for n in (3, 5):
            arm, reference, budget, other = Population(cut_arm, cut_reference, 1.0, 0.5).draw(n)
            for logs, base in zip(arm[:200], reference[:200], strict=True):
                result = found(logs, base, budget, other)
                if result.kind != "none":
                    excludes = (result.low or 0.0) > 1 or (result.high or math.inf) < 1
                    assert (result.p < 0.05) == excludes
                    counts[excludes] += 1
    assert min(counts.values()) > 100


def test_if_both_are_cut_off_nothing_is_known_and_one_seed_has_no_interval():
    reached, not_yet = Time(2.0, True, 8.0), Time(8.0, False, 8.0)
    assert ratio({0: not_yet}, {0: not_yet}) == Ratio(1, "none")
    assert ratio({0: not_yet, 1: reached}, {0: reached, 1: not_yet}) == Ratio(2, "none")
    assert ratio({0: not_yet}, {0: reached}) == Ratio(1, "at_least", low=pytest.approx(4.0))
    assert ratio({0: reached}, {0: not_yet}) == Ratio(1, "at_most", high=pytest.approx(0.25))
    assert ratio({0: reached}, {1: reached}) is None
    # Both seeds are cut off at four times the reference's time, so there is no spread to test with.
    both = ratio({0: not_yet, 1: not_yet}, {0: reached, 1: reached})
    assert both == Ratio(2, "at_least", low=pytest.approx(4.0), p=None)
