"""Intervals over documents for one model, and for its change under another rotation."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from poslab.analysis.by_document import by_document
from poslab.record.losses import RescaledMeasurement
from support.arms import ONE_EACH, arm


def test_with_documents_of_one_size_they_are_t_intervals():
    trained, rescaled = np.random.default_rng(0).normal(2.0, 0.3, (2, 20))
    runs = [arm(losses[None], ONE_EACH, "llama").arm.runs[0] for losses in (trained, rescaled)]
    run = replace(runs[0], rescaled={"yarn": RescaledMeasurement(runs[1].segments)})
    first, second = by_document(run, [8.0])
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
