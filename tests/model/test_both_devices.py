"""Models on a CPU and on a GPU beside float64: what no other test of devices has."""

import pytest
import torch

import poslab
from support.devices import CUDA

MIXERS = [("none", mixer, True) for mixer in ("retention", "gated_linear", "gated_delta", "hybrid")]
TWO_SIDED = [(pos, kind, False) for kind in ("flash", "linear") for pos in ("rope", "t5", "alibi")]
BY_CONTENT = [("inkling", "flash", True), ("selective_rope", "flash", True), ("wall", "flash", True)]
TOLERANCE = 1e-3  # of the norm


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize(("pos", "attention", "causal"), [*MIXERS, *TWO_SIDED, *BY_CONTENT])
def test_loss_and_gradients_are_those_of_float64(pos, attention, causal, device):
    tokens, targets = torch.randint(256, (2, 2, 200), generator=torch.Generator().manual_seed(0))
    sizes = {"layers": 4, "width": 64, "heads": 2, "context_length": 128}
    gpt = poslab.gpt(pos, attention, causal=causal, **sizes)
    found = []
    for place, dtype in (("cpu", torch.float64), (device, torch.float32)):
        gpt.to(place, dtype).zero_grad()
        loss = gpt(tokens.to(place), targets=targets.to(place))
        loss.backward()
        gradients = [parameter.grad for parameter in gpt.parameters() if parameter.grad is not None]
        found.append([loss.detach(), *(gradient.clone() for gradient in gradients)])
    largest = max(float(gradient.norm()) for gradient in found[0][1:])
    for expected, mine in zip(*found, strict=True):
        size = max(float(expected.norm()), 0.1 * largest)
        assert float((mine.cpu().double() - expected).norm()) < TOLERANCE * size
