"""Attention sinks: the formula, in float64, and the code of gpt-oss in the transformers library."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

from poslab.config.schema import PairError
from poslab.model.attention import Site, build_attention
from poslab.model.positions import Geometry, build_scheme
from poslab.study.run.plan import plan
from support.attentions import HEADS, Case, assert_same, attended, masked, parts
from support.models import ATTENTIONS, SCHEMES, make_gpt
from support.runs import request

SINKS = torch.tensor([-1.0, 0.5, 3.0], dtype=torch.float64)


def one_key_more(attend, q, k, v, site):
    """Softmax over the scores and the sink, whose value is a vector of zeros."""
    scores = attend.scores(q, k, site)
    column = site.sinks[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, column], dim=-1).softmax(dim=-1) @ torch.nn.functional.pad(v, (0, 0, 0, 1))


@pytest.mark.parametrize("window", [None, 70])
@pytest.mark.parametrize("pos", ["none", "rope", "pope", "alibi", "t5", "fox", "fire", "rope_randomised"])
def test_a_sink_is_a_key_more_with_the_value_0(pos, window):
    """Every kind of kernel on a CPU, over more than one strip, with every gradient."""
    case = Case(pos, 135, batch=1, window=window)
    expected = case.outputs_and_gradients("softmax", one_key_more, SINKS)
    for attention in ("softmax", "flash"):
        assert_same(case.outputs_and_gradients(attention, attended, SINKS), expected)
    assert_same(case.outputs_and_gradients("flash", masked, SINKS), expected)


def test_it_is_that_of_gpt_oss():
    attend, scheme, _ = parts("none", "flash")
    case = Case("none", 40)
    q, k, v = (tensor.requires_grad_() for tensor in (case.q, case.k, case.v))
    sinks = SINKS.clone().requires_grad_()
    mask = torch.full((40, 40), -torch.inf, dtype=torch.float64).triu(1)
    module = SimpleNamespace(num_key_value_groups=1, sinks=sinks, training=False)
    theirs, _ = eager_attention_forward(module, q, k, v, mask, q.shape[-1] ** -0.5)
    ours = attend.attend(q, k, v, Site(scheme, torch.arange(40), sinks=sinks)).transpose(1, 2)
    upstream = torch.randn(ours.shape, dtype=torch.float64)
    for output in (ours, theirs):
        torch.testing.assert_close(output, ours, atol=1e-12, rtol=1e-12)
    gradients = [torch.autograd.grad(output, [q, k, v, sinks], upstream) for output in (ours, theirs)]
    assert_same(*gradients)


@pytest.mark.parametrize("pos", ["none", "alibi"])
def test_sinks_on_both_sides(pos):
    geometry = Geometry(24, HEADS, 64, layers=1, causal=False)
    scheme = build_scheme(SCHEMES[pos], geometry).double()
    q, k, v = torch.randn(3, 2, HEADS, 20, 8, dtype=torch.float64)
    site = Site(scheme, torch.arange(20), sinks=SINKS)
    for name in ("softmax", "flash"):
        attend = build_attention(ATTENTIONS[name], geometry, scheme)
        torch.testing.assert_close(attend.attend(q, k, v, site), one_key_more(attend, q, k, v, site))


def test_half_precision_stays_near_the_formula():
    case = Case("alibi", 135, dtype=torch.bfloat16)
    attend, scheme, _ = parts("alibi", "flash")
    site = Site(scheme.float(), torch.arange(135), sinks=SINKS.float())
    given = case.q, case.k, case.v
    mixed = attend.attend(*given, site)
    assert mixed.dtype == torch.bfloat16
    exact = one_key_more(attend, *(x.double() for x in given), replace(site, sinks=SINKS))
    torch.testing.assert_close(mixed.double(), exact, atol=0.03, rtol=0.03)


def test_sinks_start_at_0_and_learn():
    gpt = make_gpt(SCHEMES["rope"], ATTENTIONS["flash"], sinks=True)
    tokens = torch.arange(40)[None] % 50
    gpt(tokens).square().sum().backward()
    for block in gpt.blocks:
        assert not block.attention.sinks.any()
        assert block.attention.sinks.grad.abs().min() > 0


@pytest.mark.parametrize("attention", ["linear", "performer"])
def test_what_has_no_softmax_is_refused_when_the_run_is_planned(attention, tmp_path):
    sizes = {"layers": 2, "width": 32, "heads": 2, "sinks": True}
    with pytest.raises(PairError, match="choose attention=flash"):
        plan(request(attention=ATTENTIONS[attention], model=sizes), tmp_path)
