"""The fused kernel for CPUs, with and without a sliding bias, and strips, against plain sums in float64."""

import pytest
import torch

from poslab.model.kernels import cpu_causal, sliding, strips
from poslab.model.kernels.cpu_causal import Blocks
from poslab.model.kernels.sliding import Sliding
from poslab.model.kernels.strips import Strips
from poslab.model.positions.alibi import slopes
from support.pairwise import pairwise

HEADS = 4
BLOCKS = ["short", "blocks"]


def alibi(length):
    return -torch.tensor([*slopes(HEADS - 1), 0.0], dtype=torch.float64)[:, None] * torch.arange(length)


def learned(length, seed=0):
    """Return a learned number for each head and distance."""
    return torch.randn(HEADS, length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs(length, width=7, batch=2, size=1.0, heads=HEADS):
    """Return queries, keys, values and the upstream gradient, as views with the layout of the model."""
    stream = torch.Generator().manual_seed(length)
    drawn = torch.randn(4, batch, length, heads, width, generator=stream, dtype=torch.float64)
    drawn[:2] *= size
    return [each.transpose(1, 2) for each in drawn]


def plain(q, k, v, bias, scale, positions=None):
    """Compute attention by the matrix of scores and its softmax."""
    positions = torch.arange(q.shape[-2]) if positions is None else positions
    distance = positions[:, None] - positions
    added = bias[:, distance.clamp(min=0)].masked_fill(distance < 0, -torch.inf)
    return (q @ k.mT * scale + added).softmax(dim=-1) @ v


def by_blocks(q, k, v, bias, scale):
    """Compute attention by blocks, without the bias."""
    return Blocks.apply(q, k, v, scale)


def by_strips(q, k, v, bias, scale):
    return Strips.apply(q, k, v, bias, None, None, None, None, scale)


def results(how, tensors, bias=None):
    """Return the output and the gradients of q, k, v and of a learned bias."""
    *three, upstream = tensors
    leaves = [each.detach().requires_grad_() for each in three]
    scale = leaves[0].shape[-1] ** -0.5
    output = how(*leaves, bias, scale)
    if bias is not None and bias.requires_grad:
        leaves.append(bias)
    return [output, *torch.autograd.grad(output, leaves, upstream)]


def assert_same(ours, reference, tolerance=1e-10):
    for one, other in zip(ours, reference, strict=True):
        torch.testing.assert_close(one.double(), other, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    ("length", "size"),
    [*((length, cpu_causal.BLOCK) for length in (1, 2, 63, 64, 65, 333)), (130, 1), (130, 7), (130, 1000)],
)
def test_no_bias(length, size, monkeypatch):
    monkeypatch.setattr(cpu_causal, "BLOCK", size)
    tensors, bias = inputs(length), torch.zeros(HEADS, length)
    ours = results(by_blocks, tensors)
    assert_same(ours, results(plain, tensors, bias), 1e-12)
    for each in ours:  # the layout of the projections: heads are joined without a copy
        assert each.transpose(1, 2).is_contiguous()


@pytest.fixture(params=BLOCKS)
def calls(request, monkeypatch):
    """Blocks from one table, and small blocks with views."""
    if request.param != "short":
        monkeypatch.setattr(sliding, "SHORT", 0)
        monkeypatch.setattr(sliding, "BLOCK", 16)
        monkeypatch.setattr(sliding, "STEP", 8)


@pairwise(
    "calls, length, width, batch", BLOCKS, [1, 2, 63, 150, 200], [1, 7, 8, 33], [1, 3], indirect=["calls"]
)
def test_a_fixed_and_a_learned_bias(calls, length, width, batch):
    """ALiBi's bias with a slope of 0 in one head, and a learned bias with a gradient."""
    tensors = inputs(length, width, batch)
    for bias in (alibi(length), learned(length).requires_grad_()):
        assert_same(results(Sliding.apply, tensors, bias), results(plain, tensors, bias))


@pytest.mark.parametrize("size", [0.0, 0.1, 1.0, 4.0])
def test_only_keys_without_effect_are_omitted(size):
    """For any size of queries and keys, though only steep heads omit any, to 1e-10."""
    length = 600
    tensors, bias = inputs(length, width=8, batch=1, size=size), 16 * alibi(length)
    reach = sliding._reach(*tensors[:2], bias, 8**-0.5)
    assert reach[-1] == length - 1  # slope 0
    assert min(reach) < length / 2
    assert_same(results(Sliding.apply, tensors, bias), results(plain, tensors, bias))


def test_a_distant_key_that_outweighs_its_bias_is_not_omitted():
    """The first key scores 600 for each query, the others -600: a penalty of 1.5 per token is too small."""
    length, width, number = 700, 4, 300**0.5
    q = torch.full((1, 1, length, width), number, dtype=torch.float64)
    k, v = torch.full_like(q, -number), torch.zeros_like(q)
    k[..., 0, :], v[..., 0, :] = number, 1.0
    bias = -1.5 * torch.arange(length, dtype=torch.float64)[None]
    output = Sliding.apply(q, k, v, bias, width**-0.5)
    torch.testing.assert_close(output, torch.ones_like(output))


def test_nan_is_not_hidden():
    """All queries see the first key, and its NaN reaches each of them for any slope."""
    q, k, v, _ = inputs(600, width=4, batch=1)
    k = k.clone()
    k[..., 0, :] = torch.nan
    assert Sliding.apply(q, k, v, 8 * alibi(600), 0.5).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["alibi", "learned"])
def test_long_sequences_in_the_training_dtypes(kind, dtype):
    """No further from float64 than plain products of the same rounded inputs."""
    length = 700
    tensors = [each.to(dtype) for each in inputs(length, width=16, batch=1)]
    bias = alibi(length) if kind == "alibi" else learned(114)[:, torch.arange(length).clamp(max=113)]
    wide = [each.double() for each in tensors]
    exact = results(plain, wide, bias)
    ours = results(Sliding.apply, tensors, bias.float())
    strip = results(by_strips, tensors, bias.float())
    eps = torch.finfo(dtype).eps
    for one, other, reference in zip(ours, strip, exact, strict=True):
        error, beside = ((each.double() - reference).abs().max() for each in (one, other))
        # bfloat16: the fused kernel rounds weights before products, as without a bias
        allowed = 4 * eps * reference.abs().max()
        assert error <= max(1.5 * beside, allowed)


@pytest.mark.parametrize("live", [1, 2**10, 2**30])
@pytest.mark.parametrize("rows", [1, 16, 500])
def test_strips_of_any_size_equal_plain_softmax(rows, live, monkeypatch):
    monkeypatch.setattr(strips, "STRIP", rows)
    monkeypatch.setattr(strips, "LIVE", live)
    tensors, bias = inputs(130, batch=3), learned(130).requires_grad_()
    assert_same(results(by_strips, tensors, bias), results(plain, tensors, bias))
