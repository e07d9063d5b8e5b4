"""FlexAttention compared with the plain form, uncompiled on a CPU, forward and backward, in float64.

PyTorch refuses backward on a CPU, for want of a compiled kernel; its uncompiled backward runs there all the
same. Compiled kernels, which are what a GPU runs, are tested there (test_devices.py).
"""

import sys
from functools import partial

import pytest
import torch
import torch.nn.attention.flex_attention
from torch._subclasses.fake_tensor import FakeTensorMode

from poslab.model.attention import Site, build_attention, flash
from poslab.model.kernels import flex
from poslab.model.positions import Geometry, build_scheme
from support.attentions import Case
from support.models import ATTENTIONS, SCHEMES
from support.pairwise import pairwise

HEADS, WIDTH = 2, 8
RANDOMISED = {"scheme": "randomised", "stretch": 2, "of": SCHEMES["t5"]}
SINKS = torch.tensor([-1.0, 2.0], dtype=torch.float64)
LENGTH = flex.BLOCK + 2  # two blocks

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.fixture
def backward_on_cpus(monkeypatch):
    """Remove the check that refuses from the module, which its function's name hides."""
    module = sys.modules["torch.nn.attention.flex_attention"]
    monkeypatch.setattr(module, "_validate_device", lambda *tensors: None)


@pytest.fixture
def refused_as_on_cuda(monkeypatch):
    """Apply the compiler's condition for gradients, which a CPU does not reach: each tensor is read once."""
    module = sys.modules["torch._higher_order_ops.flex_attention"]
    graphs = module.create_fw_bw_graph

    def checked(*arguments):
        forward, joint = graphs(*arguments)
        joint.graph.eliminate_dead_code()
        summed = torch.ops.flex_lib.zeros_and_scatter.default
        for node in joint.graph.find_nodes(op="call_function", target=summed):
            assert {user.op for user in node.users} == {"output"}
        return forward, joint

    monkeypatch.setattr(module, "create_fw_bw_graph", checked)


def by_flex(attend, q, k, v, site):
    return flex.attend(site.turned_queries(q), site.turned_keys(k), v, site, q.shape[-1] ** -0.5)


@pytest.mark.parametrize(
    ("pos", "sinks", "window"),
    [
        *((pos, None, None) for pos in ("none", "inkling", RANDOMISED)),
        *((pos, None, 50) for pos in ("t5", "fox")),
        ("inkling", SINKS, 50),
    ],
)
def test_it_equals_softmax_with_every_gradient(pos, sinks, window, backward_on_cpus, refused_as_on_cuda):
    Case(pos, LENGTH, HEADS, window=window).check("softmax", how=by_flex, sinks=sinks)


def test_sums_of_gates_keep_their_digits_far_from_the_start():
    """The difference of two sums in float32 after 50,000 tokens with gates of one half."""
    log_gates = torch.full((1, 1, 50_000), -0.6931, dtype=torch.float64)
    coarse, fine = flex.split_sums(log_gates, torch.float32)
    assert coarse.dtype == fine.dtype == torch.float32
    sums = log_gates.cumsum(-1)
    for near in (1, 3, 100):
        split = (coarse[..., near:] - coarse[..., :-near]) + (fine[..., near:] - fine[..., :-near])
        torch.testing.assert_close(split.double(), sums[..., near:] - sums[..., :-near], atol=4e-5, rtol=0)


@pairwise("length, window", [1, 128, 300, 600, 1152], [None, 1, 2, 128, 129, 130, 200, 512, 5000])
def test_blocks_contain_all_visible_keys_and_no_block_is_superfluous(length, window):
    mask = flex._blocks(length, torch.device("cpu"), window, lambda *index: None)
    row, key = torch.arange(length)[:, None], torch.arange(length)
    seen = (row >= key) & (row - key < (window or length))
    blocks = torch.nn.functional.pad(seen, (0, -length % flex.BLOCK, 0, -length % flex.BLOCK))
    blocks = blocks.unflatten(1, (-1, flex.BLOCK)).unflatten(0, (-1, flex.BLOCK))
    assert torch.equal(mask.to_dense()[0, 0] > 0, blocks.any(-1).any(1))
    if window is None:  # only the last block is masked key by key
        whole = torch.arange(len(blocks), dtype=torch.int32)
        assert torch.equal(mask.full_kv_num_blocks[0, 0], whole)


def test_it_compiles_to_one_graph_for_each_kind_of_layer(monkeypatch):
    """With a graph break, parameters could silently lose their gradients."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    monkeypatch.setattr(torch.compiler.config, "recompile_limit", 1)
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, HEADS, 130, WIDTH, generator=generator)
    table = torch.randn(HEADS, 130, generator=generator)
    profiles = torch.randn(1, HEADS, 130, 9, generator=generator)
    compiled = flex._compiled.__wrapped__()
    for sinks in (None, torch.ones(HEADS)):
        arguments = (q, k, v, table, None, None, profiles, sinks, torch.arange(130), None, 0.25)
        torch.testing.assert_close(compiled(*arguments), flex.attend_with(*arguments))


def test_no_forward_pass_searches_for_flash_attn(monkeypatch):
    """A failing search would break the graph of each compiled block on a GPU."""
    with FakeTensorMode(), torch.device("cuda"):
        geometry = Geometry(HEADS * WIDTH, HEADS, LENGTH, layers=1)
        scheme = build_scheme(SCHEMES["rope"], geometry)
        attend = build_attention(ATTENTIONS["flash"], geometry, scheme)
        monkeypatch.setattr("poslab.model.kernels.flash_attn.installed", None)
        monkeypatch.setattr(flash, "_fused", lambda backend, q, k, v, scale: v)
        q, k, v = torch.empty(3, 1, HEADS, LENGTH, WIDTH, dtype=torch.bfloat16)
        attend.attend(q, k, v, Site(scheme, torch.arange(LENGTH)))
    assert attend.kernel == "torch flash (cuda)"
