"""The targets scored in extrapolation, in batches of any size. Their losses: test_sharing.py."""

import numpy as np
import pytest

from poslab.evaluation.extrapolation import spread
from poslab.evaluation.losses import token_losses
from support.evaluation import examples
from support.models import ATTENTIONS, SCHEMES, make_gpt

CONTEXT, LONGEST = 16, 64


def segments(count=3, vocabulary=50):
    generator = np.random.default_rng(0)
    return generator.integers(0, vocabulary, (count, 2 * LONGEST + 1))


@pytest.mark.parametrize(
    ("limit", "value", "sizes"),
    [
        ("evaluation.losses.TOKENS_A_BATCH", {"cpu": 1}, [64, 64, 64]),
        ("evaluation.losses.TOKENS_A_BATCH", {"cpu": 130}, [128, 64]),
        ("evaluation.losses.PAIRS_A_BATCH", 2 * 64**2, [128, 64]),
        ("model.kernels.cross_entropy.LOGITS", 1000, [192]),
    ],
)
def test_the_batch_size_has_no_effect(monkeypatch, limit, value, sizes):
    gpt = make_gpt(SCHEMES["t5"], ATTENTIONS["softmax"])
    windows = segments()[:, :65]
    whole = token_losses(gpt, *examples(windows))
    monkeypatch.setattr(f"poslab.{limit}", value)
    batches = []
    np.testing.assert_allclose(
        token_losses(gpt, *examples(windows), on_batch=batches.append), whole, rtol=1e-6
    )
    assert batches == sizes


@pytest.mark.parametrize("count", [1, 7, 64, 256, 3000, 5000])
def test_sliding_targets_are_distinct_and_spread(count):
    segment, block = spread(64, 64, count)
    pairs = set(zip(segment.tolist(), block.tolist(), strict=True))
    assert len(pairs) == len(segment) >= 0.7 * min(count, 4096)
    if count >= 256:
        assert len(set(segment.tolist())) == 64  # every segment
        assert abs(block.mean() - 31.5) < 2  # and every place in them equally often
