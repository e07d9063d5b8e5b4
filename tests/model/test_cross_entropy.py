"""The loss in blocks of logits, compared with PyTorch's cross entropy over all of them."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from poslab.model.kernels import cross_entropy as in_blocks
from poslab.objectives import UNSCORED
from support.devices import CUDA
from support.gradients import assert_same_with_gradients
from support.tensors import Largest

TOKENS, WIDTH, VOCABULARY = 96, 8, 300


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    x = torch.randn(TOKENS, WIDTH, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(VOCABULARY, WIDTH, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(VOCABULARY, (TOKENS,))
    targets[::5] = UNSCORED
    return x, weight, targets


@pytest.mark.parametrize("logits", [1, 1000, 7 * VOCABULARY, TOKENS * VOCABULARY])
def test_loss_and_gradients_are_those_of_all_logits(monkeypatch, inputs, logits):
    monkeypatch.setattr(in_blocks, "LOGITS", logits)
    x, weight, targets = inputs
    expected = cross_entropy(x @ weight.T, targets, ignore_index=UNSCORED)
    found = in_blocks.mean_loss(x, weight, targets)
    assert_same_with_gradients(found, expected, [x, weight], tolerance=1e-13)
    each = cross_entropy(x @ weight.T, targets, ignore_index=UNSCORED, reduction="none")
    torch.testing.assert_close(in_blocks.losses(x, weight, targets), each, rtol=1e-12, atol=0)


def test_no_tensor_is_as_large_as_all_logits(monkeypatch, inputs):
    monkeypatch.setattr(in_blocks, "LOGITS", 10 * VOCABULARY)
    x, weight, targets = inputs
    with Largest() as seen:
        in_blocks.mean_loss(x, weight, targets).backward()
        in_blocks.losses(x, weight, targets)
    assert seen.numbers == 10 * VOCABULARY


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_gradients_keep_float32_under_autocast(monkeypatch, inputs, device):
    monkeypatch.setattr(in_blocks, "LOGITS", 1000)
    x, weight, targets = (tensor.detach().to(device) for tensor in inputs)
    x, weight = (tensor.float().requires_grad_() for tensor in (x, weight))
    expected = cross_entropy(x @ weight.T, targets, ignore_index=UNSCORED)
    with torch.autocast(device, torch.bfloat16):
        found = in_blocks.mean_loss(x, weight, targets)
    torch.testing.assert_close(found, expected, rtol=0.01, atol=0)
    pairs = (torch.autograd.grad(loss, (x, weight)) for loss in (found, expected))
    for gradient, plain in zip(*pairs, strict=True):
        assert gradient.dtype == torch.float32
        torch.testing.assert_close(gradient, plain, rtol=0.1, atol=0.002)


def test_a_second_backward_pass_is_refused(monkeypatch, inputs):
    monkeypatch.setattr(in_blocks, "LOGITS", 1000)
    loss = in_blocks.mean_loss(*inputs)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()
