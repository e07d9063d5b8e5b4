"""What intervals over seeds and documents promise, over simulated studies in which both are drawn."""

import math

import numpy as np
import pytest
from scipy.special import stdtrit

from poslab.analysis.spread import difference, noise_of_draws
from poslab.analysis.statistics import Difference, paired
from support.arms import FIGURE, ONE_EACH, arm

STUDIES = 300
SLACK = 0.025  # of a share near 0.95 over so many studies: two standard errors
UNEQUAL = [5, 1, 1, 1] * 5


def study(
    random: np.random.Generator, seeds: int, noise: tuple[float, float, float], counts: list[int]
) -> tuple[Difference, Difference]:
    """The difference of arms that differ by 0.3 over all seeds and documents, and that over seeds alone.

    The noise is of seeds, of documents, and of each seed on each document.
    """
    of_seeds, of_documents, of_both = noise
    drawn = 0.3 + of_seeds * random.standard_normal((seeds, 1))
    drawn = drawn + of_documents * math.sqrt(len(counts) / seeds) * random.standard_normal(len(counts))
    drawn = drawn + of_both * random.standard_normal((seeds, len(counts)))
    hard = 2 + random.standard_normal((seeds, len(counts)))  # what both arms find hard
    arms = arm(hard + drawn, counts, "alibi"), arm(hard, counts, "rope")
    found, alone = difference(*arms, FIGURE), paired(arms[0].by_seed(FIGURE), arms[1].by_seed(FIGURE))
    assert found is not None
    assert alone is not None
    return found, alone


@pytest.mark.parametrize(
    ("seeds", "noise", "counts"),
    [
        (5, (1, 0.3, 0), ONE_EACH),
        (3, (1, 1, 0), UNEQUAL),
        (2, (0.3, 1, 0.3), UNEQUAL),
        (3, (0.3, 1, 0.3), UNEQUAL),
        (2, (0.1, 1, 3), ONE_EACH),
    ],
)
def test_intervals_hold_the_truth_over_seeds_and_documents(seeds, noise, counts):
    random, held = np.random.default_rng(0), 0
    for _ in range(STUDIES):
        found, alone = study(random, seeds, noise, counts)
        assert found.half_width >= alone.half_width
        assert (found.p < 0.05) == (abs(found.mean) > found.half_width)
        held += abs(found.mean - 0.3) <= found.half_width
    assert held / STUDIES >= 0.95 - SLACK


def test_where_text_decides_seeds_alone_would_be_too_sure():
    """And the interval over both is no wider than it has to be."""
    random, held, held_alone = np.random.default_rng(0), 0, 0
    for _ in range(STUDIES):
        found, alone = study(random, 5, (0.3, 1, 0), ONE_EACH)
        held += abs(found.mean - 0.3) <= found.half_width
        held_alone += abs(alone.mean - 0.3) <= alone.half_width
    assert held / STUDIES == pytest.approx(0.95, abs=SLACK)
    assert held_alone / STUDIES < 0.6


def test_without_noise_of_seeds_it_is_the_interval_over_documents():
    """Of equal documents the t interval of their differences; of unequal ones the error of a ratio."""
    by_document = 3 + np.random.default_rng(1).standard_normal((1, 20)).repeat(2, axis=0)
    zero = np.zeros_like(by_document)
    found = difference(arm(by_document, ONE_EACH, "alibi"), arm(zero, ONE_EACH, "rope"), FIGURE)
    half = stdtrit(19, 0.975) * by_document[0].std(ddof=1) / math.sqrt(20)
    assert (found.half_width, found.documents) == (pytest.approx(half), 20)
    gain = difference(arm(by_document, ONE_EACH, "alibi"), arm(zero, ONE_EACH, "rope"), "context_gain_8x")
    assert (gain.mean, gain.half_width) == (pytest.approx(-found.mean), pytest.approx(half))
    uneven = difference(arm(by_document, UNEQUAL, "alibi"), arm(zero, UNEQUAL, "rope"), FIGURE)
    without = [
        np.average(np.delete(by_document[0], i), weights=np.delete(UNEQUAL, i)) for i in range(len(UNEQUAL))
    ]
    jackknife = 19 / 20 * ((np.array(without) - np.mean(without)) ** 2).sum()
    assert uneven.text.variance == pytest.approx(jackknife, rel=0.2)
    effective = sum(UNEQUAL) ** 2 / sum(count**2 for count in UNEQUAL)  # Kish's number of documents
    assert uneven.text.freedom == pytest.approx(effective - 1)


def test_the_gain_at_the_training_length_is_0_on_any_text():
    losses = 3 + np.random.default_rng(1).standard_normal((2, 2, 20))
    arms = [arm(by_document, ONE_EACH, label) for by_document, label in zip(losses, "ab", strict=True)]
    for item in arms:
        for run in item.arm.runs:
            run.segments["sliding", 1.0] = run.segments["sliding", 8.0]
    found = difference(*arms, "context_gain_1x")
    assert (found.mean, found.half_width, found.p) == (0, 0, None)


def test_the_variance_is_right_on_average_where_documents_vary_alike():
    """Summed over noise of 1 in each document alone it is that of the mean, the squared shares."""
    shares = np.array(UNEQUAL) / sum(UNEQUAL)
    apart = [shares * (unit - unit @ shares) for unit in np.eye(len(shares))]
    summed = sum(noise_of_draws(list(added), list(shares)).variance for added in apart)
    assert summed == pytest.approx((shares**2).sum())


@pytest.mark.parametrize(
    ("counts", "figure", "known"),
    [
        ([3], FIGURE, (True, True)),  # one document
        ([40, 1], FIGURE, (True, True)),  # two of which one is all
        (ONE_EACH, FIGURE, (False, False)),
        (ONE_EACH, FIGURE, (True, False)),  # beside an older record
        (ONE_EACH, "aulc", (True, True)),
    ],
)
def test_what_does_not_tell_documents_apart_keeps_the_interval_over_seeds(counts, figure, known):
    losses = np.random.default_rng(2).standard_normal((2, 3, len(counts)))
    mine, theirs = (arm(each, counts, "alibi", says) for each, says in zip(losses, known, strict=True))
    assert difference(mine, theirs, figure) == paired(mine.by_seed(figure), theirs.by_seed(figure))
    alone = difference(*(arm(each[:1], counts, "alibi") for each in losses), figure)
    assert (alone.half_width, alone.p) == (None, None)  # of one seed
