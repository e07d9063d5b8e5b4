"""FlexAttention beside the plain form, on a CPU: its uncompiled form, forward and backward, in float64.

PyTorch refuses backward on a CPU, for want of a compiled kernel; its uncompiled backward runs there all the
same. Compiled kernels, which are what a GPU runs, are tested there (test_devices.py).
"""

import sys

import pytest
import torch
import torch.nn.attention.flex_attention
from torch.autograd.graph import saved_tensors_hooks

from poslab.config.schema import Options
from poslab.model.attention import Site, build_attention
from poslab.model.kernels import flex
from poslab.model.positions import Geometry, Scheme, build_scheme
from support.models import SCHEMES

HEADS, WIDTH, BATCH = 2, 16, 2
RANDOMISED = {"scheme": "randomised", "stretch": 2, "of": SCHEMES["t5"]}
ADDED = {name: SCHEMES[name] for name in ("none", "t5", "fire", "fox", "inkling")} | {
    "randomised": RANDOMISED
}
LENGTH = flex.BLOCK + 2  # two blocks, each a strip

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.fixture(autouse=True)
def strips_of_a_block(monkeypatch):
    monkeypatch.setattr(flex, "STRIP", flex.BLOCK)


@pytest.fixture
def backward_on_cpus(monkeypatch):
    """The module, which its own function hides, without the check that refuses."""
    module = sys.modules["torch.nn.attention.flex_attention"]
    monkeypatch.setattr(module, "_validate_device", lambda *tensors: None)


class BiasAndGates(Scheme):
    """A bias by both positions and gates, which no scheme of the package has together."""

    def pairwise_bias(self, queries, keys):
        return -(queries[:, None] * keys).double().sqrt().expand(self.geometry.heads, -1, -1)

    def log_gates(self, x):
        return -x.square().mean(dim=-1, keepdim=True).mT.expand(-1, self.geometry.heads, -1)


def layer(name):
    geometry = Geometry(HEADS * WIDTH, HEADS, 640, layers=2)
    whole = BiasAndGates(Options(), geometry) if name == "both" else build_scheme(ADDED[name], geometry)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in whole.double().parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return whole, whole.layer(0)


def outputs_and_gradients(name, with_flex, with_sinks=False):
    whole, scheme = layer(name)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(4, BATCH, HEADS, LENGTH, WIDTH, generator=generator, dtype=torch.float64)
    x = torch.randn(BATCH, LENGTH, HEADS * WIDTH, generator=generator, dtype=torch.float64)
    leaves = [tensor.clone().requires_grad_() for tensor in (*drawn[:3], x)]
    q, k, v, x = leaves
    if with_sinks:
        leaves.append(torch.tensor([-1.0, 2.0], dtype=torch.float64, requires_grad=True))
    site = Site.of(scheme, whole.place(LENGTH, None), x, leaves[4] if with_sinks else None)
    if with_flex:
        output = flex.attend(q, k, v, site, WIDTH**-0.5)
    else:
        output = build_attention({"kind": "softmax"}, scheme.geometry, scheme).attend(q, k, v, site)
    inputs = [*leaves, *scheme.parameters()]
    gradients = torch.autograd.grad(output, inputs, drawn[3], allow_unused=True)
    return [output, *(torch.zeros(()) if each is None else each for each in gradients)]


@pytest.mark.parametrize("with_sinks", [False, True])
@pytest.mark.parametrize("name", [*ADDED, "both"])
def test_it_is_softmax_with_every_gradient(name, with_sinks, backward_on_cpus):
    for mine, plain in zip(
        outputs_and_gradients(name, True, with_sinks),
        outputs_and_gradients(name, False, with_sinks),
        strict=True,
    ):
        torch.testing.assert_close(mine, plain, atol=1e-10, rtol=1e-10)


def test_sums_of_gates_keep_their_digits_far_from_the_start():
    """The difference of two sums in float32, after 50,000 tokens whose gates are a half."""
    log_gates = torch.full((1, 1, 50_000), -0.6931, dtype=torch.float64)
    coarse, fine = flex.split_sums(log_gates, torch.float32)
    assert coarse.dtype == fine.dtype == torch.float32
    sums = log_gates.cumsum(-1)
    for near in (1, 3, 100):
        split = (coarse[..., near:] - coarse[..., :-near]) + (fine[..., near:] - fine[..., :-near])
        torch.testing.assert_close(split.double(), sums[..., near:] - sums[..., :-near], atol=4e-5, rtol=0)


@pytest.mark.parametrize(
    ("first", "queries", "keys"), [(0, 1, 1), (0, 128, 128), (0, 300, 300), (512, 88, 600)]
)
def test_blocks_hold_all_keys_up_to_each_query_and_no_more_blocks(first, queries, keys):
    def causal(b, h, query, key):
        return query + first >= key

    mask = flex._blocks(torch.tensor([first], dtype=torch.int32), queries, keys, None, causal)
    last = first + torch.arange(-(-queries // flex.BLOCK)) * flex.BLOCK + flex.BLOCK - 1
    begins = torch.arange(-(-keys // flex.BLOCK)) * flex.BLOCK
    assert torch.equal(mask.to_dense()[0, 0] > 0, begins <= last[:, None])
    whole = begins + flex.BLOCK - 1 <= last[:, None] - flex.BLOCK + 1
    assert torch.equal(mask.full_kv_num_blocks[0, 0], whole.sum(dim=1).int())


def test_strips_keep_no_square_matrix():
    whole, scheme = layer("fire")
    sizes = []
    q, k, v = torch.randn(3, 1, HEADS, LENGTH, WIDTH, dtype=torch.float64)
    with saved_tensors_hooks(lambda tensor: sizes.append(tensor.numel()) or tensor, lambda tensor: tensor):
        site = Site(scheme, whole.place(LENGTH, None))
        flex.attend(q, k, v, site, WIDTH**-0.5)
    assert sizes
    assert max(sizes) < LENGTH**2


def test_it_is_one_graph():
    """With a break in it, what is learned could lose its gradient without a word."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, HEADS, 130, WIDTH, generator=generator)
    table = torch.randn(HEADS, 130, generator=generator)
    profiles = torch.randn(1, HEADS, 130, 9, generator=generator)
    compiled = torch.compile(flex.attend_with, fullgraph=True, backend="eager")
    for sinks in (None, torch.ones(HEADS)):
        first = torch.zeros(1, dtype=torch.int32)
        given = (q, k, v, table, None, None, profiles, sinks, torch.arange(130), first, None, 0.25)
        torch.testing.assert_close(compiled(*given), flex.attend_with(*given))
