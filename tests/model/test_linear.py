"""Linear attention and Performer in chunks compared with T x T products, with every gradient, in float64."""

import pytest
import torch
from torch import nn

from poslab.config.schema import PairError
from poslab.model.attention import Site
from poslab.model.kernels.rotation import turn
from poslab.model.positions import Scheme, Tail
from support.attentions import Case, parts, sizes_kept
from support.models import ATTENTIONS, SCHEMES, make_gpt
from support.pairwise import pairwise

WEIGHTS = ["none", "rope", "alibi", "t5", "fox"]  # a scheme for each way of weighting keys in chunks


@pytest.mark.parametrize(
    ("pos", "causal"),
    [*((pos, True) for pos in (*WEIGHTS, "pope", "rope_randomised")), ("alibi", False), ("t5", False)],
)
def test_memory_of_linear_is_proportional_to_the_length(pos, causal):
    longer, shorter = (sum(sizes_kept(pos, "linear", length, causal=causal)) for length in (2048, 1024))
    assert longer < 2.1 * shorter


def in_chunks_of(chunk):
    def in_chunks(attend, *arguments):
        attend.chunk = chunk
        return attend.attend(*arguments)

    return in_chunks


@pairwise(
    "pos, causal, length, chunk",
    [*((pos, True) for pos in WEIGHTS), *((pos, False) for pos in ("alibi", "t5", "as_command_a"))],
    [1, 2, 63, 64, 65, 300],
    [16, 48, 64, 256],
)
def test_linear_in_chunks_equals_the_masked_product(pos, causal, length, chunk):
    """Outputs and every gradient to 1e-10, including T5's table, at any length and chunk size."""
    case = Case(pos, length, heads=2, batch=1, causal=causal)
    case.check("linear", how=in_chunks_of(chunk))


class Everything(Scheme):
    """A rotation, a learned bias with a learned geometric tail, and gates; no scheme has all of them."""

    horizon = 5

    def __init__(self, options, geometry):
        super().__init__(options, geometry)
        self.near = nn.Parameter(torch.empty(geometry.heads, self.horizon + 1))
        self.slope = nn.Parameter(torch.empty(geometry.heads))

    def place(self, length, generator):
        consecutive = torch.arange(length)
        return consecutive if self.geometry.consecutive else 4 * consecutive + consecutive % 3

    def rotate(self, x, positions):
        return turn(x, 0.1 * positions.double()[:, None] * torch.arange(1, 1 + x.shape[-1] // 2), "half")

    def bias(self, distance):
        last = self.near[:, distance.clamp(max=self.horizon)]
        return last - self.slope.abs()[:, None] * (distance - self.horizon).clamp(min=0)

    def tail(self):
        return Tail(self.horizon, -self.slope.abs())

    def log_gates(self, x):
        return -x.square().mean(dim=-1, keepdim=True).mT.expand(-1, self.geometry.heads, -1)


@pytest.mark.parametrize("consecutive", [True, False])
@pytest.mark.parametrize("chunk", [4, 16, 64])
def test_linear_combines_a_rotation_a_learned_bias_and_gates(chunk, consecutive):
    """With the gradients of the near biases and of the decay."""
    Case(Everything, 50, consecutive=consecutive).check("linear", how=in_chunks_of(chunk))


def test_a_tail_is_ignored_with_a_bias_by_both_positions():
    class Both(Everything):
        def pairwise_bias(self, queries, keys):
            return super().pairwise_bias(queries, keys) / (queries[:, None] + 1)

    with pytest.raises(PairError, match="never becomes geometric"):
        parts(Both, "linear")


@pytest.mark.parametrize("pos", ["none", "rope", "pope", "alibi", "t5"])
def test_products_of_bfloat16_summed_in_float32_are_within_its_rounding(pos):
    """As linear attention computes on CUDA without gates; near 1, bfloat16 has steps of 2^-7."""
    case, results = Case(pos, 500, dtype=torch.float32), []
    upstream = torch.randn(case.v.shape, generator=torch.Generator().manual_seed(3))
    for half in (None, torch.bfloat16):
        attend, scheme, whole = parts(pos, "linear")
        whole.to(torch.float32)
        leaves = [tensor.clone().requires_grad_() for tensor in (case.q, case.k, case.v)]
        attend.products = half
        output = attend.attend(*leaves, Site(scheme, torch.arange(500)))
        inputs = [*leaves, *scheme.parameters()]
        results.append([output, *torch.autograd.grad(output, inputs, upstream)])
    for exact, rounded in zip(*results, strict=True):
        assert 0 < (rounded - exact).norm() / exact.norm() < 2**-6


@pytest.mark.parametrize("pos", ["alibi", "t5", "fox"])
def test_linear_is_stable_at_length(pos):
    """At 4,000 tokens in float32, where a decay from the start would underflow."""
    length = 4_000
    case = Case(pos, length, heads=2, batch=1)
    results = []
    for dtype in (torch.float32, torch.float64):
        attend, scheme, whole = parts(pos, "linear", heads=2)
        whole.to(dtype)
        q, k, v, x = (tensor.to(dtype).requires_grad_() for tensor in (case.q, case.k, case.v, case.x))
        output = attend.attend(q, k, v, Site.of(scheme, torch.arange(length), x))
        results.append([output, *torch.autograd.grad(output.sum(), [q, k, v])])
    for single, double in zip(*results, strict=True):
        assert torch.isfinite(single).all()
        torch.testing.assert_close(single.double(), double, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("norm", [1, 10, 40, 80])
def test_performer_is_finite_for_keys_of_any_length(norm):
    attend, scheme, _ = parts("none", "performer")
    case = Case("none", 300, dtype=torch.float32)
    attend.to(torch.float32)
    q, k = (norm * each / each.norm(dim=-1, keepdim=True) for each in (case.q, case.k))
    assert torch.isfinite(attend.attend(q.requires_grad_(), k, case.v, Site(scheme, torch.arange(300)))).all()


def test_linears_features_and_their_slopes_do_not_underflow():
    attend, _, _ = parts("none", "linear")
    x = torch.tensor([-50.0, -17.0, -1.0, 0.0, 2.0], requires_grad=True)
    below = torch.tensor([-50.0, -17.0, -1.0, 0.0]).double().exp().tolist()
    features = attend.feature_map(x, True)
    (slopes,) = torch.autograd.grad(features.sum(), x)
    assert features.tolist() == pytest.approx([*below, 3.0], rel=1e-6)
    assert slopes.tolist() == pytest.approx([*below, 1.0], rel=1e-6)


def test_performers_features_depend_on_seed_and_layer_and_are_stored():
    one, again, other = (make_gpt(SCHEMES["none"], ATTENTIONS["performer"], seed=seed) for seed in (0, 0, 1))
    features = [gpt.state_dict()["blocks.0.attention.omega"] for gpt in (one, again, other)]
    assert torch.equal(features[0], features[1])
    assert not torch.equal(features[0], features[2])
    assert not torch.equal(features[0], one.state_dict()["blocks.1.attention.omega"])
    one.blocks[0].attention.draw(torch.Generator().manual_seed(9))
    assert not torch.equal(features[1], one.state_dict()["blocks.0.attention.omega"])
