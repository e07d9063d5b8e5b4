"""The coverage of intervals over seeds and documents, in simulated studies that draw both."""

import math

import numpy as np
import pytest
from scipy.special import stdtrit

from poslab.analysis.spread import difference, noise_of_draws
from poslab.analysis.statistics import Difference, paired
from support.arms import FIGURE, ONE_EACH, arm

STUDIES = 300
SLACK = 0.025  # two standard errors of a share near 0.95 over STUDIES
UNEQUAL = [5, 1, 1, 1] * 5


def study(
    random: np.random.Generator, seeds: int, noise: tuple[float, float, float], counts: list[int]
) -> tuple[Difference, Difference]:
    """Return the difference of arms that differ by 0.3, over seeds and documents and over seeds only.

    `noise` is that of seeds, of documents, and of each seed on each document.
    """
    of_seeds, of_documents, of_both = noise
    effects = 0.3 + of_seeds * random.standard_normal((seeds, 1))
    effects = effects + of_documents * math.sqrt(len(counts) / seeds) * random.standard_normal(len(counts))
    effects = effects + of_both * random.standard_normal((seeds, len(counts)))
    hard = 2 + random.standard_normal((seeds, len(counts)))  # hard for both arms
    arms = arm(hard + effects, counts, "alibi"), arm(hard, counts, "rope")
    over_both = difference(*arms, FIGURE)
    over_seeds = paired(arms[0].by_seed(FIGURE), arms[1].by_seed(FIGURE))
    assert over_both is not None is not over_seeds
    return over_both, over_seeds


@pytest.mark.parametrize(
    ("seeds", "noise", "counts"),
    [
        (5, (1, 0.3, 0), ONE_EACH),
        (3, (1, 1, 0), UNEQUAL),
        (2, (0.3, 1, 0.3), UNEQUAL),
        (2, (0.1, 1, 3), ONE_EACH),
    ],
)
def test_intervals_over_seeds_and_documents_cover_the_truth(seeds, noise, counts):
    random, held = np.random.default_rng(0), 0
    for _ in range(STUDIES):
        found, over_seeds = study(random, seeds, noise, counts)
        assert found.half_width >= over_seeds.half_width
        assert (found.p < 0.05) == (abs(found.mean) > found.half_width)
        held += abs(found.mean - 0.3) <= found.half_width
    assert held / STUDIES >= 0.95 - SLACK


def test_without_seed_noise_it_is_the_interval_over_documents():
    """For equal documents that is the t interval of their differences, else the error of a ratio."""
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
    effective = sum(UNEQUAL) ** 2 / sum(count**2 for count in UNEQUAL)  # Kish's effective number of documents
    assert uneven.text.freedom == pytest.approx(effective - 1)


def test_the_gain_at_the_training_length_is_0_on_any_text():
    losses = 3 + np.random.default_rng(1).standard_normal((2, 2, 20))
    arms = [arm(by_document, ONE_EACH, label) for by_document, label in zip(losses, "ab", strict=True)]
    for item in arms:
        for run in item.arm.runs:
            run.segments["sliding", 1.0] = run.segments["sliding", 8.0]
    found = difference(*arms, "context_gain_1x")
    assert (found.mean, found.half_width, found.p) == (0, 0, None)


def test_the_variance_is_right_on_average_if_documents_vary_equally():
    """With noise of 1 in one document at a time, variances sum to that of the mean: the squared shares."""
    shares = np.array(UNEQUAL) / sum(UNEQUAL)
    apart = [shares * (unit - unit @ shares) for unit in np.eye(len(shares))]
    summed = sum(noise_of_draws(list(added), list(shares)).variance for added in apart)
    assert summed == pytest.approx((shares**2).sum())


@pytest.mark.parametrize(
    ("counts", "figure", "known"),
    [
        ([3], FIGURE, (True, True)),  # one document
        ([40, 1], FIGURE, (True, True)),  # two documents, but one has nearly all tokens
        (ONE_EACH, FIGURE, (False, False)),
        (ONE_EACH, FIGURE, (True, False)),  # next to an older record
        (ONE_EACH, "aulc", (True, True)),
    ],
)
def test_without_known_documents_the_interval_is_that_over_seeds(counts, figure, known):
    losses = np.random.default_rng(2).standard_normal((2, 3, len(counts)))
    mine, theirs = (arm(each, counts, "alibi", says) for each, says in zip(losses, known, strict=True))
    assert difference(mine, theirs, figure) == paired(mine.by_seed(figure), theirs.by_seed(figure))
    over_seeds = difference(*(arm(each[:1], counts, "alibi") for each in losses), figure)
    assert (over_seeds.half_width, over_seeds.p) == (None, None)  # one seed
