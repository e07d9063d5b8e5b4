"""Logits that grow with log(n), around any scheme, by their formulas."""

import math
from itertools import cycle

import pytest
import torch

from poslab.model.positions import Geometry, build_scheme
from support.formulas import HEADS, WIDTH, small
from support.gradients import assert_same_with_gradients
from support.models import SCHEMES
from support.parity import scores

TOKENS = 40
CAUSAL = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
RULES = {
    "llama4": lambda n: 1 + 0.3 * math.log(1 + n // 7),
    "inkling": lambda n: 1 + 0.3 * math.log(max(n / 7, 1)),
    "beam": lambda n: (1 + n / 7) ** 0.3,
    "yarn": lambda n: (1 + 0.3 * math.log(max(n / 7, 1))) ** 2,
}
INSIDE = {name: SCHEMES[name] for name in ("none", "rope", "t5", "fire", "fox", "carope", "inkling")}


def queries_and_keys():
    return torch.randn(2, 2, HEADS, TOKENS, WIDTH, dtype=torch.float64, requires_grad=True)


def times(inside, factor, q, k, x):
    """Return the inner scheme's scores with products and a bias by content multiplied, but no other bias."""
    positions = torch.arange(TOKENS)
    if inside.overrides("content_bias"):
        return scores(inside, q, k, positions, x) * factor[..., None]
    added = scores(inside, torch.zeros_like(q), torch.zeros_like(k), positions, x)
    return (scores(inside, q, k, positions, x) - added) * factor[..., None] + added


@pytest.mark.parametrize(("inside", "rule"), list(zip(INSIDE, cycle(RULES), strict=False)))
def test_fixed_rules_multiply_the_products(rule, inside):
    whole = small("log_scaled", rule=rule, strength=0.3, start=7, of=INSIDE[inside])
    layer, own = whole.layer(0), whole.of.layer(0)
    q, k = queries_and_keys()
    x = torch.randn(2, TOKENS, HEADS * WIDTH, dtype=torch.float64)
    factor = torch.tensor([RULES[rule](i + 1) for i in range(TOKENS)], dtype=torch.float64)
    ours = scores(layer, q, k, torch.arange(TOKENS), x)[..., CAUSAL]
    assert_same_with_gradients(ours, times(own, factor, q, k, x)[..., CAUSAL], [q, k])


def test_ssmax_trains_a_number_for_each_head_and_layer():
    geometry = Geometry(HEADS * WIDTH, HEADS, 64, layers=2)
    whole = build_scheme(SCHEMES["ssmax"], geometry).double()
    first, second = (whole.layer(index).scale for index in range(2))
    assert first is not second
    assert torch.equal(first.detach(), torch.full((HEADS,), 0.43, dtype=torch.float64).float().double())
    assert set(whole.rates()) == set(whole.parameters()) == {first, second}
    with torch.no_grad():
        first.copy_(torch.tensor([0.5, -0.2, 1.1]))
    q, k = queries_and_keys()
    ours = scores(whole.layer(0), q, k, torch.arange(TOKENS))[..., CAUSAL]
    logs = torch.tensor([math.log(i + 1) for i in range(TOKENS)], dtype=torch.float64)
    factor = (first[:, None] * logs)[..., None].expand(-1, -1, TOKENS)[..., CAUSAL]
    expected = scores(whole.of, q, k, torch.arange(TOKENS))[..., CAUSAL] * factor
    assert_same_with_gradients(ours, expected, [q, k, first])


def test_ssmax_counts_the_keys_in_a_window():
    geometry = Geometry(HEADS * WIDTH, HEADS, 64, layers=1, window=4)
    layer = build_scheme(SCHEMES["ssmax"], geometry).layer(0)
    keys = torch.tensor([1, 2, 3, 4, 4, 4])
    torch.testing.assert_close(layer.factor(torch.arange(6)), layer.scale[:, None] * keys.log())
