"""That what is printed of a time to target over the reference's is true, though runs are cut off at a budget.

Times are log-normal, paired by seed, with their logarithms correlated or not. A study prints one of three
forms: an interval, "at least" or "at most". Each form is held to its confidence in the studies that print it:
to look at all studies together hides that those in which every run got there are the quick ones.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import ndtri

from poslab.analysis.statistics import Ratio, Time, estimate, ratio
from support.pairwise import pairwise

PROMISED = 0.935  # of the studies that print a form, in which it is true
DRAWN = 30_000  # studies of a cell, of which so many of each form are looked at:
JUDGED = 250
FEWEST = 100  # studies of a form, from which on they are judged
SPREAD = 0.1  # of log times, of the side that spreads more
EFFECT = 0.2  # log of the true ratio

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Population:
    """Seeds of an arm and of the reference: how far they spread, and which share of each is cut off."""

    cut_arm: float
    cut_reference: float
    steady_arm: float = 1.0  # of SPREAD
    steady_reference: float = 1.0
    correlation: float = 0.0

    def draw(self, n: int, studies: int = DRAWN) -> tuple[Array, Array, float, float]:
        """Log times of arm and reference, a row a study of n seeds, and the logarithms of both budgets."""
        random = np.random.default_rng([n, round(1000 * self.cut_arm), round(1000 * self.cut_reference)])
        shared, *own = random.standard_normal((3, studies, n))
        arm, reference = (
            math.sqrt(self.correlation) * shared + math.sqrt(1 - self.correlation) * each for each in own
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
    said = ratio(timed(arm, budget), timed(reference, other))
    assert said is not None
    return said


def true(said: Ratio) -> bool:
    """Whether what is printed holds the true ratio."""
    return (said.low or 0.0) <= math.exp(EFFECT) <= (said.high or math.inf)


def coverage(
    population: Population, n: int, judged: int = JUDGED, studies: int = DRAWN
) -> dict[str, tuple[float, int]]:
    """By the form that is printed: in which share of the studies that print it is true, of how many."""
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
        said = [found(arm[i], reference[i], budget, other) for i in places]
        assert {one.kind for one in said} <= {form}
        if len(said) >= FEWEST:
            shares[form] = sum(map(true, said)) / len(said), len(said)
    return shares


STEADY = [(1.0, 1.0, 0.0), (1.0, 0.2, 0.0), (0.2, 1.0, 0.6), (1.0, 0.2, 0.6)]
CUT = [(0.05, 0.0), (0.3, 0.0), (0.45, 0.0), (0.6, 0.0), (0.0, 0.2), (0.0, 0.6), (0.1, 0.6), (0.45, 0.45)]


@pairwise("n, cut_arm, cut_reference, steady_arm, steady_reference, correlation", [3, 5, 10], CUT, STEADY)
def test_each_form_is_true_in_the_studies_that_print_it(
    n, cut_arm, cut_reference, steady_arm, steady_reference, correlation
):
    """With 5 to 60 % of the runs of either or of both cut off, and either five times as steady."""
    population = Population(cut_arm, cut_reference, steady_arm, steady_reference, correlation)
    for form, (share, judged) in coverage(population, n).items():
        slack = 2.5 * math.sqrt(PROMISED * (1 - PROMISED) / judged)
        assert share >= PROMISED - slack, (form, share, judged)


@pytest.mark.parametrize("n", [2, 3])
def test_a_bound_is_true_where_runs_that_were_cut_off_hide_their_spread(n):
    """The hardest case of a bound: few seeds, one run in five cut off, a reference that hardly spreads."""
    share, judged = coverage(Population(0.2, 0.0, steady_reference=0.2), n, 6000)["at_least"]
    assert judged == 6000
    assert share >= PROMISED


@pytest.mark.parametrize("n", [3, 10])
def test_far_from_the_budget_it_is_the_t_interval(n):
    arm, reference, _, _ = Population(0.0, 0.0).draw(n)
    true_ones = 0
    for mine, others in zip(arm[:1500], reference[:1500], strict=True):
        far = 1 + float(max(mine.max(), others.max())) + 100 * SPREAD
        said, plain = found(mine, others, far, far), estimate([float(one) for one in mine - others])
        assert (said.low, said.high) == pytest.approx(
            (math.exp(plain.mean - plain.half_width), math.exp(plain.mean + plain.half_width))
        )
        true_ones += true(said)
    assert true_ones / 1500 == pytest.approx(0.95, abs=0.017)


def test_the_interval_is_that_of_a_further_seed_where_its_run_might_be_cut_off():
    """Five log times 0, ±0.1, ±0.2: the 98 % prediction interval ends 0.65 over their mean, by hand."""
    steps = [-0.2, -0.1, 0.0, 0.1, 0.2]
    quantile, deviation = 3.747, math.sqrt(0.1 / 4)  # of Student's t of 4 degrees at 0.99; of these times
    end = quantile * deviation * math.sqrt(1 + 1 / 5)
    assert end == pytest.approx(0.649, abs=0.001)

    def over(budget: float, turned: bool = False) -> Ratio:
        times = {i: Time(math.exp(step), True, math.exp(budget)) for i, step in enumerate(steps)}
        steady = {i: Time(1.0, True, math.exp(9.0)) for i in range(5)}
        said = ratio(steady, times) if turned else ratio(times, steady)
        assert said is not None
        return said

    half = 2.776 * deviation / math.sqrt(5)
    assert over(0.66).high == pytest.approx(math.exp(half), abs=0.001)
    for turned in (False, True):  # also where the reference came near to its budget
        near = over(0.64, turned)
        assert (near.low, near.high) == pytest.approx((math.exp(-end), math.exp(end)), abs=0.001)
        assert near.mean == pytest.approx(1.0)


def test_p_is_under_five_percent_where_the_interval_or_the_bound_leaves_one_out():
    """In each form, near the budget and far from it."""
    told = {True: 0, False: 0}
    for cut_arm, cut_reference in [(0.0, 0.0), (0.1, 0.0), (0.45, 0.0), (0.0, 0.3), (0.1, 0.3)]:
        for n in (3, 5):
            arm, reference, budget, other = Population(cut_arm, cut_reference, 1.0, 0.5).draw(n)
            for mine, others in zip(arm[:200], reference[:200], strict=True):
                said = found(mine, others, budget, other)
                if said.kind != "none":
                    excludes = (said.low or 0.0) > 1 or (said.high or math.inf) < 1
                    assert (said.p < 0.05) == excludes
                    told[excludes] += 1
    assert min(told.values()) > 100


def test_both_cut_off_says_nothing_and_one_seed_is_no_interval():
    reached, not_yet = Time(2.0, True, 8.0), Time(8.0, False, 8.0)
    assert ratio({0: not_yet}, {0: not_yet}) == Ratio(1, "none")
    assert ratio({0: not_yet, 1: reached}, {0: reached, 1: not_yet}) == Ratio(2, "none")
    assert ratio({0: not_yet}, {0: reached}) == Ratio(1, "at_least", low=pytest.approx(4.0))
    assert ratio({0: reached}, {0: not_yet}) == Ratio(1, "at_most", high=pytest.approx(0.25))
    assert ratio({0: reached}, {1: reached}) is None
    # Both seeds are cut off at four times the reference's, and show no spread to test with.
    both = ratio({0: not_yet, 1: not_yet}, {0: reached, 1: reached})
    assert both == Ratio(2, "at_least", low=pytest.approx(4.0), p=None)
