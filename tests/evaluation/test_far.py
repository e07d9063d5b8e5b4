"""Evaluation at 64 times the training length: no tensor has a number for each pair of tokens."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from poslab.evaluation.extrapolation import extrapolate
from support.evaluation import examples
from support.models import ATTENTIONS, POSITIONS, make_gpt

CONTEXT, LONGEST = 32, 64 * 32
PAIRS = LONGEST * LONGEST


class Largest(TorchDispatchMode):
    """The most numbers of any tensor that an operation returns."""

    numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = function(*args, **(kwargs or {}))
        for value in returned if isinstance(returned, tuple | list) else (returned,):
            if isinstance(value, torch.Tensor):
                self.numbers = max(self.numbers, value.untyped_storage().nbytes() // value.element_size())
        return returned


def largest(scheme: str, attention: str, length: int) -> int:
    """Of the evaluation of one segment of twice `length` tokens."""
    sizes = {"width": 16, "heads": 2, "context_length": CONTEXT, "dtype": torch.float32}
    gpt = make_gpt(POSITIONS[scheme], ATTENTIONS[attention], **sizes)
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
def test_attention_at_64_times_the_training_length_is_in_blocks(scheme, attention):
    assert largest(scheme, attention, LONGEST) < PAIRS / 2


def test_plain_softmax_would_be_seen():
    """At a quarter of the length, since it takes so much memory."""
    assert largest("rope", "softmax", LONGEST // 4) >= PAIRS // 16
