"""What the report's statistics promise: intervals are Student's, and claims true over simulated studies."""

import math
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_rel

from poslab.analysis.claims import claims
from poslab.analysis.comparisons import Comparison, Rank, compare, pairs, ranks
from poslab.analysis.statistics import estimate, paired
from support.arms import of_rows

STUDIES = 1000
FALSE_ALARMS = 0.05 + 2 * math.sqrt(0.05 * 0.95 / STUDIES)
PRIMARY = "loss_8x"


def draws(n: int, effects: list[float], studies: int = STUDIES) -> Iterator[list[dict[int, float]]]:
    """Studies of one value a seed and arm: what a seed does to all arms, what it does to each, the effect."""
    random = np.random.default_rng(n)
    by_seed = random.normal(0, 1, (studies, 1, n)) + random.normal(0, 1, (studies, len(effects), n))
    for study in by_seed + np.array(effects)[:, None]:
        yield [dict(enumerate(map(float, values))) for values in study]


def judged(
    study: list[dict[int, float]],
) -> tuple[tuple[Comparison, ...], tuple[Comparison, ...], Mapping[str, Rank]]:
    """What the report says of a study: against its first arm, on every pair, and the ranks."""
    arms = [
        of_rows(f"arm {i}", *({PRIMARY: value} for value in values.values()))
        for i, values in enumerate(study)
    ]
    asked = arms, arms[0], PRIMARY
    differences = compare(*asked, (8.0,)), pairs(*asked)
    _, compared, between = claims(*asked, *differences, (8.0,), 1, [(arms, arms[0])])
    return compared, between, ranks(between)


@pytest.mark.parametrize("n", [2, 5])
def test_intervals_and_p_are_those_of_scipy(n):
    ((reference, arm),) = draws(n, [2.0, 2.5], 1)
    first, second = list(arm.values()), list(reference.values())
    plain, theirs = ttest_1samp(first, 0), ttest_rel(first, second)
    mean, difference = estimate(first), paired(arm, reference)
    assert (mean.mean - mean.half_width, mean.mean + mean.half_width) == pytest.approx(
        plain.confidence_interval(0.95)
    )
    ends = difference.mean - difference.half_width, difference.mean + difference.half_width
    assert ends == pytest.approx(theirs.confidence_interval(0.95))
    assert difference.p == pytest.approx(theirs.pvalue)


def test_an_array_is_taken_and_a_value_that_is_no_number_leaves_no_interval():
    assert estimate(np.array([1.0, 2.0, 3.0])) == estimate([1.0, 2.0, 3.0])
    assert estimate(np.array([])) is None
    assert math.isnan(estimate([1.0, math.nan]).half_width)


def test_a_rank_that_is_claimed_is_the_right_one():
    """Arms as far apart as 0, 0, 1, 2, 4 and 8 deviations: a range misses the true place of no arm."""
    effects = [4.0, 0.0, 1.0, 8.0, 0.0, 2.0]
    true = {0: (5, 5), 1: (1, 2), 2: (3, 3), 3: (6, 6), 4: (1, 2), 5: (4, 4)}
    for n in (3, 10):
        wrong, narrow = 0, 0
        for study in draws(n, effects, 400):
            _, _, places = judged(study)
            # Two arms that are equal share their places: each must be allowed the better and the worse.
            wrong += any(
                places[f"arm {i}"].best > best or places[f"arm {i}"].worst < worst
                for i, (best, worst) in true.items()
            )
            narrow += places["arm 3"] == Rank(6, 6)
        assert wrong / 400 <= FALSE_ALARMS
        assert n < 10 or narrow / 400 > 0.95


def test_three_deviations_are_found_with_five_seeds():
    """An effect three times the seed noise of a difference, against one arm and among six."""
    noise = math.sqrt(2)  # of a difference of two arms of noise 1
    alone = [judged(study) for study in draws(5, [0.0, -3 * noise])]
    assert sum(found[0][0].reading == "lower" for found in alone) / STUDIES > 0.95
    assert sum(found[2]["arm 1"] == Rank(1, 1) for found in alone) / STUDIES > 0.95
    among = [judged(study)[0] for study in draws(5, [0.0, -3 * noise, 0.0, 0.0, 0.0, 0.0], 400)]
    assert sum(found[0].reading == "lower" for found in among) / 400 > 0.75


def test_two_seeds_of_the_reference_are_no_measure_of_its_spread():
    """By chance they differ by almost nothing, and a difference would be a million of their deviations."""
    reference = {0: 2.0, 1: 2.000001, 2: 2.2}
    arm = {seed: loss + 0.5 for seed, loss in reference.items()}
    found = paired(dict(list(arm.items())[:2]), reference), paired(arm, reference)
    assert [None if one is None else one.deviations for one in found] == [None, pytest.approx(4.33, rel=1e-3)]
