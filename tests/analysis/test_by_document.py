"""Intervals over documents of one model, and of its change under another rotation."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from poslab.analysis.by_document import by_document
from poslab.record.losses import RescaledMeasurement
from support.arms import ONE_EACH, arm

STUDIES = 2_000
NATS_PER_BYTE = 2.0


def measured(trained, rescaled, counts):
    """The row of a model with these losses by document, and that of its rescaling."""
    runs = [arm(losses[None], counts, "llama").arm.runs[0] for losses in (trained, rescaled)]
    run = replace(runs[0], rescaled={"yarn": RescaledMeasurement(runs[1].segments)})
    return by_document(run, [8.0])


def test_of_documents_of_one_size_they_are_plain_t_intervals():
    random = np.random.default_rng(0)
    trained, rescaled = random.normal(NATS_PER_BYTE, 0.3, (2, 20))
    first, second = measured(trained, rescaled, ONE_EACH)
    for row, key, values in (
        (first, "sliding_bits_per_byte_8x", trained),
        (second, "sliding_bits_per_byte_8x", rescaled),
        (second, "change_8x", rescaled - trained),
    ):
        bits = values / math.log(2)
        low, high = ttest_1samp(bits, 0).confidence_interval(0.95)
        assert row[f"{key}_mean"] == pytest.approx(bits.mean())
        assert row[f"{key}_half_width"] == pytest.approx((high - low) / 2)
    assert "change_8x_mean" not in first


def test_they_hold_the_truth_of_documents_of_several_sizes():
    random, counts = np.random.default_rng(1), [3, 1, 1, 2] * 4
    held = np.zeros(2)
    for _ in range(STUDIES):
        trained = random.normal(NATS_PER_BYTE, 0.3, 16)
        _, row = measured(trained, trained + random.normal(-0.1, 0.1, 16), counts)
        truths = {"sliding_bits_per_byte_8x": NATS_PER_BYTE - 0.1, "change_8x": -0.1}
        for place, (key, nats) in enumerate(truths.items()):
            held[place] += abs(row[f"{key}_mean"] - nats / math.log(2)) <= row[f"{key}_half_width"]
    assert np.all(abs(held / STUDIES - 0.95) < 0.02), held / STUDIES
