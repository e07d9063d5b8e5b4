"""Geometries that are not causal. The formula of every pair there: test_attention.py."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers.models.t5.modeling_t5 import T5Attention

from poslab.config.schema import Options, PairError
from poslab.model.attention import Site, build_attention, flash
from poslab.model.positions import Geometry, Scheme, build_scheme
from support.attentions import parts
from support.models import ATTENTIONS, SCHEMES, pairs_that_work

TWO_SIDED = {"heads": 4, "context_length": 64, "causal": False}
GEOMETRY = Geometry(width=32, layers=4, **TWO_SIDED)
BY_CONTENT = {"fox", "selective_rope", "inkling", "cope", "wall", "stick_breaking", "path"}
ONE_SIDED = BY_CONTENT | {"bipe_alibi", "xpos", "log_scaled", "ssmax"}
PAIRS = pairs_that_work(GEOMETRY)


def built(pos, attention):
    """Return the scheme of a layer with random parameters, and its attention."""
    attend, scheme, _ = parts(pos, attention, **TWO_SIDED)
    return scheme, attend


def test_t5_has_the_buckets_of_the_transformers_library_on_both_sides():
    scheme, _ = built("t5", "softmax")
    keys = torch.arange(-300, 301)
    buckets = T5Attention._relative_position_bucket(
        keys, bidirectional=True, num_buckets=32, max_distance=128
    )
    expected = scheme.bucket_bias[buckets].T * 8**0.5
    torch.testing.assert_close(scheme.pairwise_bias(torch.tensor([0]), keys)[:, 0], expected)


def test_t5_never_reads_the_first_bucket_of_later_keys():
    scheme, attend = built("t5", "linear")
    with torch.no_grad():
        scheme.bucket_bias[16] = 20.0  # 57 nats: in a sum, float32 would lose the others
    q, k, v = torch.randn(3, 1, 4, 70, 8, generator=torch.Generator().manual_seed(0))
    site = Site(scheme.float(), torch.arange(70))
    output = attend.attend(q, k, v, site)
    torch.testing.assert_close(output, attend.weights(q, k, site) @ v)
    (gradient,) = torch.autograd.grad(output.sum(), scheme.bucket_bias)
    assert not gradient[16].any()
    assert gradient[[0, 17]].all()


@pytest.mark.parametrize("hook", ["log_gates", "content_bias"])
def test_two_sided_linear_attention_refuses_gates_and_biases_by_query(hook):
    class Read(Scheme):
        two_sided = True

    setattr(Read, hook, lambda *arguments: None)
    with pytest.raises(PairError, match=r"linear attention does not support on both.*attention=softmax"):
        build_attention(ATTENTIONS["linear"], GEOMETRY, Read(Options(), GEOMETRY))


@pytest.mark.parametrize("pos", ["alibi", "kerple", "fire"])
def test_a_bias_is_by_the_distance_to_either_side(pos):
    scheme, _ = built(pos, "softmax")
    before, same, after = scheme.pairwise_bias(torch.tensor([5]), torch.tensor([1, 5, 9])).unbind(dim=-1)
    assert torch.equal(before, after)
    assert (before != same).all()


def test_parts_with_a_meaning_on_both_sides_work():
    served = {pos for pos, _ in PAIRS}
    assert SCHEMES.keys() - served == ONE_SIDED
    # Mixers without attention are causal.
    assert {attention for _, attention in PAIRS} == {"flash", "linear", "performer", "softmax"}
    linear = {pos for pos, attention in PAIRS if attention == "linear"}
    assert {"rope", "none", "learned", "sinusoidal", "pope", "alibi", "t5"} <= linear
    assert not linear & {"kerple", "fire"}


def test_on_cuda_a_mask_is_in_the_precision_of_the_queries(monkeypatch):
    """On meta tensors. cuDNN reads a float32 mask as bfloat16, and another kernel refuses it."""
    seen = []

    def noted(q, k, v, attn_mask, scale):
        seen.append({x.dtype for x in (q, k, v, attn_mask)})
        return v

    monkeypatch.setattr(flash, "scaled_dot_product_attention", noted)
    with FakeTensorMode(), torch.device("cuda"):
        scheme = build_scheme(SCHEMES["alibi"], GEOMETRY)
        attend = build_attention(ATTENTIONS["flash"], GEOMETRY, scheme)
        q, k, v = torch.empty(3, 2, 4, 40, 8, dtype=torch.bfloat16)
        mixed = attend.attend(q, k, v, Site(scheme, torch.arange(40)))
    assert seen == [{torch.float32}]
    assert mixed.dtype == torch.bfloat16
