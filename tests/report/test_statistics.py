"""What the report's statistics promise, over thousands of simulated studies with known effects."""

import math
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from poslab.report.analysis.arms import Arm
from poslab.report.analysis.comparisons import Comparison, Pair, Rank, compare, pairs, ranks
from poslab.report.analysis.estimates import ArmFigures
from poslab.report.analysis.statistics import Ratio, Time, estimate, paired, ratio

STUDIES = 2000
SLACK = 0.015  # of a share near 0.05 over 2,000 studies: three standard errors
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
) -> tuple[tuple[Comparison, ...], tuple[Pair, ...], Mapping[str, Rank]]:
    """What the report says of a study: against its first arm, on every pair, and the ranks."""
    arms = [
        ArmFigures(
            Arm(f"arm {i}", "", "", (), {}), {}, tuple({"seed": s, PRIMARY: v} for s, v in values.items())
        )
        for i, values in enumerate(study)
    ]
    found = pairs(arms, arms[0], PRIMARY)
    return compare(arms, arms[0], PRIMARY, (8.0,)), found, ranks(found)


@pytest.mark.parametrize("n", [3, 5, 10])
def test_intervals_hold_the_truth_as_often_as_they_say(n: int) -> None:
    held, held_paired = 0, 0
    for reference, arm in draws(n, [2.0, 2.5]):
        mean, difference = estimate(list(arm.values())), paired(arm, reference)
        assert mean is not None
        assert mean.half_width is not None
        assert difference is not None
        assert difference.half_width is not None
        held += abs(mean.mean - 2.5) <= mean.half_width
        held_paired += abs(difference.mean - 0.5) <= difference.half_width
    assert held / STUDIES == pytest.approx(0.95, abs=SLACK)
    assert held_paired / STUDIES == pytest.approx(0.95, abs=SLACK)


@pytest.mark.parametrize("n", [3, 5, 10])
def test_noise_wins_nothing(n: int) -> None:
    """Six arms without any effect: neither the reference's family nor that of all pairs finds one."""
    against, separated, winners = 0, 0, 0
    for study in draws(n, [0.0] * 6):
        comparisons, every, places = judged(study)
        against += any(item.reading.startswith(("lower", "higher")) for item in comparisons)
        separated += any(pair.separated for pair in every)
        winners += any(place.worst == 1 for place in places.values())
    assert against / STUDIES <= FALSE_ALARMS
    assert separated / STUDIES <= FALSE_ALARMS
    assert winners <= separated


def test_a_rank_that_is_claimed_is_the_right_one() -> None:
    """Arms as far apart as 0, 0, 1, 2, 4 and 8 deviations: a range misses the true place of no arm."""
    effects = [4.0, 0.0, 1.0, 8.0, 0.0, 2.0]
    true = {0: (5, 5), 1: (1, 2), 2: (3, 3), 3: (6, 6), 4: (1, 2), 5: (4, 4)}
    for n in (3, 5, 10):
        wrong, narrow = 0, 0
        for study in draws(n, effects, 800):
            _, _, places = judged(study)
            # Two arms that are equal share their places: each must be allowed the better and the worse.
            wrong += any(
                places[f"arm {i}"].best > best or places[f"arm {i}"].worst < worst
                for i, (best, worst) in true.items()
            )
            narrow += places["arm 3"] == Rank(6, 6)
        assert wrong / 800 <= FALSE_ALARMS
        assert n < 5 or narrow / 800 > {5: 0.3, 10: 0.95}[n]


def test_three_deviations_are_found_with_five_seeds() -> None:
    """An effect three times the seed noise of a difference, against one arm and among six."""
    noise = math.sqrt(2)  # of a difference of two arms of noise 1
    alone = [judged(study) for study in draws(5, [0.0, -3 * noise])]
    assert sum(found[0][0].reading == "lower" for found in alone) / STUDIES > 0.95
    assert sum(found[2]["arm 1"] == Rank(1, 1) for found in alone) / STUDIES > 0.95
    among = [judged(study)[0] for study in draws(5, [0.0, -3 * noise, 0.0, 0.0, 0.0, 0.0], 800)]
    assert sum(found[0].reading == "lower" for found in among) / 800 > 0.75


def times(
    n: int, cut: float, quiet: float, random: np.random.Generator, effect: float
) -> tuple[dict[int, Time], dict[int, Time]]:
    """Log-normal tokens to a target of an arm and the reference; a share of the arm's runs is cut off."""
    shared = random.normal(0, 0.05, n)
    arm = effect + shared + random.normal(0, 0.1, n)
    reference = shared + random.normal(0, 0.1 * quiet, n)
    spread = math.hypot(0.05, 0.1)
    budget = effect + spread * {0.1: 1.2816, 0.3: 0.5244, 0.6: -0.2533}[cut]
    return (
        {i: Time(math.exp(min(a, budget)), bool(a <= budget)) for i, a in enumerate(arm)},
        {i: Time(math.exp(r), True) for i, r in enumerate(reference)},
    )


def holds(found: Ratio, truth: float) -> bool:
    """Whether what is printed of a ratio is true."""
    assert found.kind != "none"
    low, high = found.low, found.high
    return (low is None or low <= truth) and (high is None or truth <= high)


@pytest.mark.parametrize("n", [2, 3, 5, 10])
@pytest.mark.parametrize("cut", [0.1, 0.3, 0.6])
def test_runs_that_are_cut_off_bias_no_ratio(n: int, cut: float) -> None:
    """With a reference as noisy as the arm, and with one three times as steady."""
    random, effect = np.random.default_rng(n), 0.2
    truth = math.exp(effect)
    for quiet in (1.0, 1 / 3):
        false = false_turned = false_dropped = dropped = 0
        for _ in range(STUDIES):
            arm, reference = times(n, cut, quiet, random, effect)
            found, turned = ratio(arm, reference), ratio(reference, arm)
            assert found is not None
            assert turned is not None
            everywhere = all(time.reached for time in arm.values())
            assert (found.kind, turned.kind) == (("exact",) * 2 if everywhere else ("at_least", "at_most"))
            false += not holds(found, truth)
            false_turned += not holds(turned, 1 / truth)
            got_there = {seed: time for seed, time in arm.items() if time.reached}
            if len(got_there) >= 2:
                dropped += 1
                false_dropped += not holds(ratio(got_there, reference) or found, truth)
        assert false / STUDIES <= 0.05 + SLACK
        assert false_turned / STUDIES <= 0.05 + SLACK
        if n == 10 and cut >= 0.3:
            assert false_dropped / dropped > 0.05 + 2 * SLACK  # what leaving runs out would print


def test_both_cut_off_says_nothing_and_one_seed_is_no_interval() -> None:
    reached, not_yet = Time(2.0, True), Time(8.0, False)
    assert ratio({0: not_yet}, {0: not_yet}) == Ratio(1, "none")
    assert ratio({0: not_yet, 1: reached}, {0: reached, 1: not_yet}) == Ratio(2, "none")
    assert ratio({0: not_yet}, {0: reached}) == Ratio(1, "at_least", low=pytest.approx(4.0))
    assert ratio({0: reached}, {0: not_yet}) == Ratio(1, "at_most", high=pytest.approx(0.25))
    assert ratio({0: reached}, {1: reached}) is None
    # Both seeds are cut off at four times the reference's: the bound is no higher than what was seen.
    both = ratio({0: not_yet, 1: not_yet}, {0: reached, 1: reached})
    assert both == Ratio(2, "at_least", low=pytest.approx(4.0))
