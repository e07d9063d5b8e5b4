"""The report's statistics: intervals are Student's, and over simulated studies claims are true."""

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
    """Yield studies of a value per seed and arm: noise of seeds on all arms and on each, and the effect."""
    random = np.random.default_rng(n)
    by_seed = random.normal(0, 1, (studies, 1, n)) + random.normal(0, 1, (studies, len(effects), n))
    for study in by_seed + np.array(effects)[:, None]:
        yield [dict(enumerate(map(float, values))) for values in study]


def judged(
    study: list[dict[int, float]],
) -> tuple[tuple[Comparison, ...], tuple[Comparison, ...], Mapping[str, Rank]]:
    """Return what the report claims: differences from the first arm, differences of all pairs, and ranks."""
    arms = [
        of_rows(f"arm {i}", *({PRIMARY: value} for value in values.values()))
        for i, values in enumerate(study)
    ]
    arguments = arms, arms[0], PRIMARY
    differences = compare(*arguments, (8.0,)), pairs(*arguments)
    _, compared, between = claims(*arguments, *differences, (8.0,), 1, [(arms, arms[0])])
    return compared, between, ranks(between)


@pytest.mark.parametrize("n", [2, 5])
def test_intervals_and_p_are_those_of_scipy(n):
    ((reference, arm),) = draws(n, [2.0, 2.5], 1)
    first, second = list(arm.values()), list(reference.values())
    single, relative = ttest_1samp(first, 0), ttest_rel(first, second)
    mean, difference = estimate(first), paired(arm, reference)
    assert (mean.mean - mean.half_width, mean.mean + mean.half_width) == pytest.approx(
        single.confidence_interval(0.95)
    )
    ends = difference.mean - difference.half_width, difference.mean + difference.half_width
    assert ends == pytest.approx(relative.confidence_interval(0.95))
    assert difference.p == pytest.approx(relative.pvalue)


def test_a_claimed_rank_is_the_right_one():
    """Arms at 0, 0, 1, 2, 4 and 8 deviations: the range of each arm contains its true place."""
    effects = [4.0, 0.0, 1.0, 8.0, 0.0, 2.0]
    true = {0: (5, 5), 1: (1, 2), 2: (3, 3), 3: (6, 6), 4: (1, 2), 5: (4, 4)}
    for n in (3, 10):
        wrong, narrow = 0, 0
        for study in draws(n, effects, 400):
            _, _, places = judged(study)
            # Two equal arms share their places, so the range of each must contain both.
            wrong += any(
                places[f"arm {i}"].best > best or places[f"arm {i}"].worst < worst
                for i, (best, worst) in true.items()
            )
            narrow += places["arm 3"] == Rank(6, 6)
        assert wrong / 400 <= FALSE_ALARMS
        assert n < 10 or narrow / 400 > 0.95


def test_three_deviations_are_found_with_five_seeds():
    """An effect of three times the seed noise of a difference, with two arms and with six."""
    noise = math.sqrt(2)  # of the difference of two arms with noise 1
    pairs_of_arms = [judged(study) for study in draws(5, [0.0, -3 * noise])]
    assert sum(found[0][0].reading == "lower" for found in pairs_of_arms) / STUDIES > 0.95
    assert sum(found[2]["arm 1"] == Rank(1, 1) for found in pairs_of_arms) / STUDIES > 0.95
    sixes = [judged(study)[0] for study in draws(5, [0.0, -3 * noise, 0.0, 0.0, 0.0, 0.0], 400)]
    assert sum(found[0].reading == "lower" for found in sixes) / 400 > 0.75


def test_two_seeds_of_the_reference_do_not_measure_its_spread():
    """By chance they hardly differ, and a difference would be a million of their deviations."""
    reference = {0: 2.0, 1: 2.000001, 2: 2.2}
    arm = {seed: loss + 0.5 for seed, loss in reference.items()}
    found = paired(dict(list(arm.items())[:2]), reference), paired(arm, reference)
    assert [None if one is None else one.deviations for one in found] == [None, pytest.approx(4.33, rel=1e-3)]
