"""Scores compared with the papers' formulas, pair by pair, if the transformers library has no code.

Shapes: B batch, T tokens, H heads, K head width.
"""

import math
from functools import cache

import pytest
import torch
from torch.nn.functional import softplus

from poslab.model.attention import Site, build_attention
from support.formulas import (
    HEADS,
    PLACES,
    THETA,
    TOKENS,
    WIDTH,
    assert_same_scores,
    assert_scores_are,
    complex_pairs,
    pair_by_pair,
    plain_product,
    queries_and_keys,
    small,
)
from support.gradients import assert_same_with_gradients
from support.models import SCHEMES, make_gpt
from support.parity import PAIRINGS, L, make_scheme, scores


def rotary(theta, *, warp=float, zeta=None):
    """sum_c Re(q_c conj(k_c) e^(i (f(m) - f(n)) theta_c)) zeta_c^((m - n) / scale_base) / sqrt K."""

    def formula(scheme, q, k, x, positions):
        z, w = (complex_pairs(tensor, scheme.options.pairing) for tensor in (q, k))

        def logit(batch, head, i, j):
            m, n = int(positions[i]), int(positions[j])
            phase = torch.tensor([(warp(m) - warp(n)) * turn for turn in theta], dtype=torch.float64)
            products = (z[batch, head, i] * w[batch, head, j].conj() * torch.exp(1j * phase)).real
            if zeta is not None:
                decays = [c ** ((m - n) / scheme.options.scale_base) for c in zeta]
                products = products * torch.tensor(decays, dtype=torch.float64)
            return products.sum() / math.sqrt(WIDTH)

        return logit

    return formula


def xpos(gamma):
    return rotary(THETA, zeta=[(2 * c / WIDTH + gamma) / (1 + gamma) for c in range(WIDTH // 2)])


def pope(scheme, q, k, x, positions):
    delta = scheme.delta.reshape(HEADS, WIDTH)
    theta = torch.tensor([10000.0 ** (-c / WIDTH) for c in range(WIDTH)], dtype=torch.float64)

    def logit(batch, head, i, j):
        magnitudes = softplus(q[batch, head, i]) * softplus(k[batch, head, j])
        phase = (positions[i] - positions[j]) * theta + delta[head]
        return (magnitudes * phase.cos()).sum() / math.sqrt(WIDTH)

    return logit


def fope(scheme, q, k, x, positions):
    """sum_c Re(q_c f_c(i) conj(k_c f_c(j))) / sqrt K; f is a sum of waves for a pair that turns, else 1."""
    scheme.draw(torch.Generator().manual_seed(3))
    assert scheme.mixtures.shape == (2, HEADS, 2, 2)
    cosines, sines = scheme.mixtures.double()
    z, w = complex_pairs(q, "half"), complex_pairs(k, "half")

    @cache
    def factors(head, position):
        pairs = []
        for c in range(WIDTH // 2):
            waves = [m for m in range(WIDTH // 2) if L * THETA[m] >= 2 * math.pi]
            if c not in waves:
                pairs.append(1 + 0j)
                continue
            real = sum(float(cosines[head, m, c]) * math.cos(position * THETA[m]) for m in waves)
            imaginary = sum(float(sines[head, m, c]) * math.sin(position * THETA[m]) for m in waves)
            pairs.append(complex(real, imaginary))
        return torch.tensor(pairs, dtype=torch.complex128)

    def logit(batch, head, i, j):
        query = z[batch, head, i] * factors(head, int(positions[i]))
        key = w[batch, head, j] * factors(head, int(positions[j]))
        return (query * key.conj()).real.sum() / math.sqrt(WIDTH)

    return logit


def cope(scheme, q, k, x, positions):
    """Three of the sums are above the largest position."""

    def logit(batch, head, i, j):
        products = [q[batch, head, i] @ k[batch, head, m] / math.sqrt(WIDTH) for m in range(j, i + 1)]
        counted = sum(product.sigmoid() for product in products).clamp(max=4)
        low, high = math.floor(counted.item()), math.ceil(counted.item())
        vector = scheme.vectors[low] + (counted - low) * (scheme.vectors[high] - scheme.vectors[low])
        return products[0] + q[batch, head, i] @ vector / math.sqrt(WIDTH)

    return logit


def kerple(scheme, q, k, x, positions):
    with torch.no_grad():
        scheme.r1.copy_(torch.tensor([0.7, 1.3, 0.02]))
        scheme.r2.copy_(torch.tensor([0.2, 0.04, 0.9]))

    def logit(batch, head, i, j):
        bias = -scheme.r1[head] * torch.log(1 + scheme.r2[head] * (positions[i] - positions[j]))
        return plain_product(q, k, batch, head, i, j) + bias

    return logit


BASE = {"base": 10000.0}
HALF, INTERLEAVED = ({"pairing": pairing} for pairing in PAIRINGS)
# Other rotations are compared with the transformers library. Scattered positions test more, but there xPos
# makes most products vanish.
FORMULAS = [
    # 2 pi / L is 0.098, and theta is 1, 0.1, 0.01, 0.001
    (rotary([*THETA[:2], 0.0, 0.0]), "hope", BASE | HALF),
    # from a turn in 4 tokens to 3 in 64; WIDTH has 4 pairs
    (
        rotary([math.pi / 2, 6 * math.pi / 64, 0.0, 0.0]),
        "rope_id",
        {"period": 4.0, "turns": 3.0} | INTERLEAVED,
    ),
    (rotary(THETA, warp=math.sqrt), "rope_warped", BASE | INTERLEAVED | {"warp": "sqrt"}),
    (rotary(THETA, warp=math.log1p), "rope_warped", BASE | HALF | {"warp": "log"}),
    (xpos(0.4), "xpos", BASE | HALF | {"gamma": 0.4, "scale_base": 512.0}),
    (xpos(1.5), "xpos", BASE | INTERLEAVED | {"gamma": 1.5, "scale_base": 20.0}),
    (pope, "pope", BASE),
    (fope, "fope", BASE | {"gain": 2.0}),
    (cope, "cope", {"positions": 5}),
    (kerple, "kerple", {}),
]


@pytest.mark.parametrize(
    ("formula", "name", "options", "places"),
    [
        *((*case, "scattered") for case in FORMULAS),
        *((*case, "consecutive") for case in FORMULAS if case[1] == "xpos"),
    ],
)
def test_scores_by_the_formula(formula, name, options, places):
    assert_scores_are(formula, name, options, places)


def test_fopes_waves_are_the_pairs_own_and_others_by_xavier():
    """In 40 heads of width 64 at L = 64, 17 of 32 pairs complete a turn."""
    scheme = make_scheme("fope", width=64, heads=40, base=100.0, gain=0.5).layer(0)
    waves = sum(100 ** (-2 * c / 64) >= 2 * math.pi / 64 for c in range(32))
    scheme.draw(torch.Generator().manual_seed(3))
    others = scheme.mixtures - torch.eye(waves)
    xavier = torch.nn.init.xavier_normal_(torch.empty(40, waves, waves), gain=0.5)
    assert others.shape == (2, 40, waves, waves)
    assert others.std().item() == pytest.approx(xavier.std().item(), rel=0.05)
    assert abs(others.mean().item()) < 0.05 * xavier.std().item()


def test_fope_draws_the_same_waves_again_and_others_for_each_layer():
    gpt = make_gpt(SCHEMES["fope"], {"kind": "flash"}, layers=2)
    first, second = (gpt.scheme.layer(index).mixtures.clone() for index in range(2))
    gpt.initialise(0)
    assert torch.equal(gpt.scheme.layer(0).mixtures, first)
    assert not torch.allclose(first, second)


def test_stick_breaking_weighs_by_the_formula():
    """One break after the other, from the nearest token on; the first token attends to nothing."""
    q, k, positions = queries_and_keys("scattered")
    scheme = small("stick_breaking").layer(0)
    attend = build_attention({"kind": "softmax"}, scheme.geometry, scheme)
    v = torch.randn(2, HEADS, TOKENS, WIDTH, dtype=torch.float64, requires_grad=True)
    rows = []
    for i in range(TOKENS):
        row, stick = torch.zeros_like(v[..., 0, :]), torch.ones_like(v[..., 0, :1])
        for j in reversed(range(i)):
            product = (q[..., i, :] * k[..., j, :]).sum(-1, keepdim=True)
            beta = (product / math.sqrt(WIDTH)).sigmoid()
            row, stick = row + stick * beta * v[..., j, :], stick * (1 - beta)
        rows.append(row)
    expected = torch.stack(rows, dim=-2)
    ours = attend.attend(q, k, v, Site.of(scheme, positions, torch.empty(0)))
    assert_same_with_gradients(ours, expected, [q, k, v])


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("threshold", [4 / L, 1.0])
def test_fire_scores_by_the_formula(threshold, places):
    """Like the authors' code, ours adds 1e-6 to the denominator: a relative difference of about 1e-6."""
    q, k, positions = queries_and_keys(places)
    scheme = small("fire", hidden=7, threshold=threshold)
    with torch.no_grad():
        scheme.c.copy_(torch.tensor([0.3]))
        scheme.threshold.copy_(torch.tensor([1.4]))

    def psi(x):
        return torch.log(1 + scheme.c[0] * x)

    def logit(batch, head, i, j):
        m, n = positions[i].double(), positions[j].double()
        least = scheme.threshold[0] * threshold * L
        quotient = psi(m - n) / psi(m if m > least else least)
        hidden = (scheme.expand.weight[:, 0] * quotient + scheme.expand.bias).relu()
        bias = scheme.project.weight[head] @ hidden + scheme.project.bias[head]
        return plain_product(q, k, batch, head, i, j) + bias

    leaves = [q, k, scheme.c, scheme.expand.weight, scheme.expand.bias, scheme.project.weight]
    if places == "consecutive":
        leaves.append(scheme.threshold)
    assert_same_scores(scores(scheme, q, k, positions), pair_by_pair(logit), leaves, tolerance=1e-5)
