"""Evaluation at 64 times the training length: no tensor has a number for each pair of tokens."""

import numpy as np
import pytest
import torch

from poslab.evaluation.extrapolation import extrapolate
from support.evaluation import examples
from support.models import ATTENTIONS, POSITIONS, make_gpt
from support.tensors import Largest

CONTEXT, LONGEST = 32, 64 * 32
PAIRS = LONGEST * LONGEST


def largest(scheme: str, attention: str, length: int) -> int:
    """Return the size of the largest tensor when a segment of twice `length` tokens is evaluated."""
    sizes = {"width": 16, "heads": 2, "context_length": CONTEXT, "dtype": torch.float32}
    layers = 4 if scheme == "as_command_a" else 1
    gpt = make_gpt(POSITIONS[scheme], ATTENTIONS[attention], layers=layers, **sizes)
    tokens = np.random.default_rng(0).integers(0, 50, (1, 2 * length + 1))
    with Largest() as seen:
        result = extrapolate(gpt, *examples(tokens), CONTEXT, 4, np.ones(50))
    assert result.lengths[-1]["length"] == length
    assert len(result.positions) == length
    assert all(np.isfinite(row["nll"]) for row in result.lengths)
    return seen.numbers


@pytest.mark.parametrize(
    ("scheme", "attention"),
    [("rope", "flash"), ("t5", "flash"), ("as_command_a", "flash"), ("alibi", "linear"), ("t5", "linear")],
)
def test_attention_far_past_the_training_length_is_in_blocks(scheme, attention):
    assert largest(scheme, attention, LONGEST) < PAIRS / 2


def test_the_largest_tensor_of_plain_softmax_is_detected():
    """At a quarter of the length, since it takes much memory."""
    assert largest("rope", "softmax", LONGEST // 4) >= PAIRS // 16
