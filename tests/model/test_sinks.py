"""Attention sinks by their formula, in float64. Those of gpt-oss: test_recipes.py."""

from dataclasses import replace

import pytest
import torch

from poslab.model.attention import Site
from support.attentions import Case, parts
from support.models import ATTENTIONS, SCHEMES, make_gpt

SINKS = torch.tensor([-1.0, 0.5, 3.0], dtype=torch.float64)


def one_key_more(attend, q, k, v, site):
    """Compute softmax over the scores and the sink, which has a value of zeros."""
    scores = attend.scores(q, k, site)
    column = site.sinks[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, column], dim=-1).softmax(dim=-1) @ torch.nn.functional.pad(v, (0, 0, 0, 1))


KINDS = ["none", "rope", "pope", "alibi", "t5", "fox", "fire", "inkling", "rope_randomised"]


@pytest.mark.parametrize(
    ("pos", "geometry"),
    [
        *((pos, geometry) for pos in KINDS for geometry in ({}, {"window": 70})),
        *((pos, {"causal": False}) for pos in ("none", "alibi")),
    ],
)
def test_a_sink_is_an_extra_key_with_the_value_0(pos, geometry):
    """Every kind of kernel on a CPU, over more than one strip, with every gradient."""
    for attention in ("softmax", "flash"):
        Case(pos, 135, batch=1, **geometry).check(attention, one_key_more, sinks=SINKS)


def test_half_precision_stays_near_the_formula():
    case = Case("alibi", 135, dtype=torch.bfloat16)
    attend, scheme, _ = parts("alibi", "flash")
    site = Site(scheme.float(), torch.arange(135), sinks=SINKS.float())
    arguments = case.q, case.k, case.v
    mixed = attend.attend(*arguments, site)
    assert mixed.dtype == torch.bfloat16
    exact = one_key_more(attend, *(x.double() for x in arguments), replace(site, sinks=SINKS))
    torch.testing.assert_close(mixed.double(), exact, atol=0.03, rtol=0.03)


def test_sinks_start_at_0_and_learn():
    gpt = make_gpt(SCHEMES["rope"], ATTENTIONS["flash"], sinks=True)
    tokens = torch.arange(40)[None] % 50
    gpt(tokens).square().sum().backward()
    for block in gpt.blocks:
        assert not block.attention.sinks.any()
        assert block.attention.sinks.grad.abs().min() > 0
