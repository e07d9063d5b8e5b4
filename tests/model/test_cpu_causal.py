"""The fused kernel for CPUs, called for blocks of queries, against plain softmax in float64."""

import pytest
import torch

from poslab.model.kernels import cpu_causal
from poslab.model.kernels.cpu_causal import Blocks

LENGTHS = [1, 2, 63, 64, 65, 128, 200, 333]


def inputs(length, width=8, batch=2, heads=3):
    """Queries, keys, values and the upstream gradient, laid out as the model has them."""
    stream = torch.Generator().manual_seed(length)
    drawn = torch.randn(4, batch, length, heads, width, generator=stream, dtype=torch.float64)
    return [each.transpose(1, 2) for each in drawn]


def results(attend, q, k, v, upstream):
    """The output and the gradients of q, k and v."""
    leaves = [each.detach().requires_grad_() for each in (q, k, v)]
    output = attend(*leaves)
    return [output, *torch.autograd.grad(output, leaves, upstream)]


def by_blocks(q, k, v):
    return Blocks.apply(q, k, v, 0.3)


def plain(q, k, v):
    ahead = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
    return (q @ k.mT * 0.3).masked_fill(ahead, -torch.inf).softmax(dim=-1) @ v


@pytest.mark.parametrize("length", LENGTHS)
def test_output_and_gradients_are_those_of_plain_softmax(length):
    tensors = inputs(length)
    torch.testing.assert_close(results(by_blocks, *tensors), results(plain, *tensors), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("size", [1, 7, 32, 1000])
def test_the_size_of_a_block_has_no_effect(size, monkeypatch):
    tensors = inputs(130)
    before = results(by_blocks, *tensors)
    monkeypatch.setattr(cpu_causal, "BLOCK", size)
    torch.testing.assert_close(results(by_blocks, *tensors), before, atol=1e-12, rtol=1e-12)


def test_a_later_token_changes_nothing():
    q, k, v, _ = inputs(200)
    before = by_blocks(q, k, v)
    for each in (q, k, v):
        each[..., 120:, :] = 7.0
    after = by_blocks(q, k, v)
    assert torch.equal(before[..., :120, :], after[..., :120, :])
    assert not torch.equal(before[..., 120, :], after[..., 120, :])


def test_float32_is_as_exact_as_the_kernel_in_one_call():
    tensors = [each.float() for each in inputs(500)]
    exact = results(plain, *(each.double() for each in tensors))

    def one_call(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)

    for ours, other, reference in zip(
        results(by_blocks, *tensors), results(one_call, *tensors), exact, strict=True
    ):
        error, beside = ((each.double() - reference).abs().max() for each in (ours, other))
        assert error <= 2 * beside


def test_heads_are_joined_without_a_copy():
    """Both the output and the gradients lie as the projections before and after them read them."""
    for each in results(by_blocks, *inputs(200)):
        assert each.transpose(1, 2).is_contiguous()
