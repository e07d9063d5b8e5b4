"""Scores against the papers' formulas, pair by pair, where the transformers library has no code.

Shapes: B batch, T tokens, H heads, K head width.
"""

import math
from functools import cache

import pytest
import torch
from torch.nn.functional import softplus

from poslab.config.schema import ConfigError, PairError
from poslab.model.attention import Site, build_attention
from poslab.model.positions import Geometry, build_scheme
from support.formulas import (
    HEADS,
    PLACES,
    THETA,
    TOKENS,
    WIDTH,
    assert_same_scores,
    assert_same_with_gradients,
    complex_pairs,
    pair_by_pair,
    plain_product,
    queries_and_keys,
    small,
)
from support.models import ATTENTIONS, SCHEMES, make_gpt
from support.pairwise import pairwise
from support.parity import PAIRINGS, L, make_scheme, scores

pytestmark = pytest.mark.usefixtures("seeded")


def rotary_logit(q, k, positions, pairing, theta, *, warp=float, zeta=None, scale_base=1.0):
    """sum_c Re(q_c conj(k_c) e^(i (f(m) - f(n)) theta_c)) zeta_c^((m - n) / scale_base) / sqrt K."""
    z, w = complex_pairs(q, pairing), complex_pairs(k, pairing)

    def logit(batch, head, i, j):
        m, n = int(positions[i]), int(positions[j])
        phase = torch.tensor([(warp(m) - warp(n)) * turn for turn in theta], dtype=torch.float64)
        products = (z[batch, head, i] * w[batch, head, j].conj() * torch.exp(1j * phase)).real
        if zeta is not None:
            decays = [c ** ((m - n) / scale_base) for c in zeta]
            products = products * torch.tensor(decays, dtype=torch.float64)
        return products.sum() / math.sqrt(WIDTH)

    return logit


BASE = {"base": 10000.0}
ROTARY = {
    "rope": (BASE, THETA, float),
    "rope_p": (BASE | {"fraction": 0.75}, [*THETA[:3], 0.0], float),
    "hope": (BASE, [*THETA[:2], 0.0, 0.0], float),  # 2 pi / L is 0.098, and theta is 1, 0.1, 0.01, 0.001
    "rope_id": (  # from a turn in 4 tokens to 3 in 64; WIDTH has 4 pairs
        {"period": 4.0, "turns": 3.0},
        [math.pi / 2, 6 * math.pi / 64, 0.0, 0.0],
        float,
    ),
    "rope_pi": (BASE | {"factor": 4.0}, [turn / 4 for turn in THETA], float),
    "rope_warped by sqrt": (BASE | {"warp": "sqrt"}, THETA, math.sqrt),
    "rope_warped by log": (BASE | {"warp": "log"}, THETA, math.log1p),
}


@pairwise("name, pairing, places", ROTARY, PAIRINGS, PLACES)
def test_rotary_scores_by_the_formula(name, pairing, places):
    options, theta, warp = ROTARY[name]
    q, k, positions = queries_and_keys(places)
    ours = scores(small(name.split()[0], pairing=pairing, **options), q, k, positions)
    assert_same_scores(ours, pair_by_pair(rotary_logit(q, k, positions, pairing, theta, warp=warp)), [q, k])


@pairwise("gamma, scale_base, pairing, places", [(0.4, 512.0), (1.5, 20.0)], PAIRINGS, PLACES)
def test_xpos_scores_by_the_formula(gamma, scale_base, pairing, places):
    q, k, positions = queries_and_keys(places)
    scheme = small("xpos", base=10000.0, pairing=pairing, gamma=gamma, scale_base=scale_base)
    zeta = [(2 * c / WIDTH + gamma) / (1 + gamma) for c in range(WIDTH // 2)]
    logit = rotary_logit(q, k, positions, pairing, THETA, zeta=zeta, scale_base=scale_base)
    assert_same_scores(scores(scheme, q, k, positions), pair_by_pair(logit), [q, k])


@pytest.mark.parametrize("places", PLACES)
def test_pope_scores_by_the_formula(places):
    q, k, positions = queries_and_keys(places)
    scheme = small("pope", base=10000.0)
    delta = scheme.delta.reshape(HEADS, WIDTH)
    theta = torch.tensor([10000.0 ** (-c / WIDTH) for c in range(WIDTH)], dtype=torch.float64)

    def logit(batch, head, i, j):
        magnitudes = softplus(q[batch, head, i]) * softplus(k[batch, head, j])
        phase = (positions[i] - positions[j]) * theta + delta[head]
        return (magnitudes * phase.cos()).sum() / math.sqrt(WIDTH)

    assert_same_scores(scores(scheme, q, k, positions), pair_by_pair(logit), [q, k, scheme.delta])


def fope_logit(scheme, q, k, positions):
    """sum_c Re(q_c f_c(i) conj(k_c f_c(j))) / sqrt K, f of a pair that turns a sum of waves, else 1."""
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


def drawn_fope(gain=2.0):
    scheme = small("fope", base=10000.0, gain=gain).layer(0)
    scheme.draw(torch.Generator().manual_seed(3))
    return scheme


@pytest.mark.parametrize("places", PLACES)
def test_fope_scores_by_the_formula(places):
    q, k, positions = queries_and_keys(places)
    scheme = drawn_fope()
    assert scheme.mixtures.shape == (2, HEADS, 2, 2)
    expected = pair_by_pair(fope_logit(scheme, q, k, positions))
    assert_same_scores(scores(scheme, q, k, positions), expected, [q, k])


def test_fopes_waves_are_one_of_a_pairs_own_and_others_by_xavier():
    """In 40 heads of 64 numbers at L = 64, 17 of 32 pairs turn once."""
    scheme = make_scheme("fope", width=64, heads=40, base=100.0, gain=0.5).layer(0)
    waves = sum(100 ** (-2 * c / 64) >= 2 * math.pi / 64 for c in range(32))
    scheme.draw(torch.Generator().manual_seed(3))
    others = scheme.mixtures - torch.eye(waves)
    xavier = torch.nn.init.xavier_normal_(torch.empty(40, waves, waves), gain=0.5)
    assert others.shape == (2, 40, waves, waves)
    assert others.std().item() == pytest.approx(xavier.std().item(), rel=0.05)
    assert abs(others.mean().item()) < 0.05 * xavier.std().item()


def test_fope_is_drawn_again_to_the_same_waves_and_apart_for_each_layer():
    gpt = make_gpt(SCHEMES["fope"], {"kind": "flash"}, layers=2)
    first, second = (gpt.scheme.layer(index).mixtures.clone() for index in range(2))
    gpt.initialise(0)
    assert torch.equal(gpt.scheme.layer(0).mixtures, first)
    assert not torch.allclose(first, second)


@pytest.mark.parametrize(
    ("name", "length", "message"),
    [
        ("fope", 6, "pos=none"),
        ("hope", 6, "pos=none"),
        ("hope", 7000, "pos=rope"),
    ],
)
def test_schemes_by_the_training_length_are_refused_where_it_decides_nothing(name, length, message):
    with pytest.raises(ConfigError, match=message):
        build_scheme(SCHEMES[name], Geometry(64, 8, length, 1))


@pytest.mark.parametrize("places", PLACES)
def test_stick_breaking_weighs_by_the_formula(places):
    """One break after the other, from the nearest token on; the first token mixes nothing."""
    q, k, positions = queries_and_keys(places)
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


def test_stick_breaking_leaves_sinks_no_share():
    with pytest.raises(PairError, match=r"leave model\.sinks out"):
        make_gpt(SCHEMES["stick_breaking"], ATTENTIONS["softmax"], sinks=True)


def test_cope_scores_by_the_formula():
    """One query and one key at a time; three of the sums are above the last number."""
    q, k, positions = queries_and_keys("consecutive")
    scheme = small("cope", positions=5).layer(0)

    def logit(batch, head, i, j):
        products = [q[batch, head, i] @ k[batch, head, m] / math.sqrt(WIDTH) for m in range(j, i + 1)]
        counted = sum(product.sigmoid() for product in products).clamp(max=4)
        low, high = math.floor(counted.item()), math.ceil(counted.item())
        vector = scheme.vectors[low] + (counted - low) * (scheme.vectors[high] - scheme.vectors[low])
        return products[0] + q[batch, head, i] @ vector / math.sqrt(WIDTH)

    assert_same_scores(scores(scheme, q, k, positions), pair_by_pair(logit), [q, k, scheme.vectors])


@pytest.mark.parametrize(
    ("name", "options", "kinds", "choice"),
    [
        ("cope", {"positions": 5}, ["flash", "linear"], "softmax"),
        ("wall", {"offset": 8.0}, ["retention"], "flash, softmax or linear"),
        ("stick_breaking", {}, ["flash", "linear"], "softmax"),
        ("path", {"rank": 5}, ["flash", "linear"], "softmax"),
    ],
)
def test_a_scheme_by_pairs_is_refused_where_no_attention_has_them(name, options, kinds, choice):
    scheme = small(name, **options).layer(0)
    for kind in kinds:
        with pytest.raises(PairError, match=f"attention={choice}$"):
            build_attention({"kind": kind}, scheme.geometry, scheme)


@pytest.mark.parametrize("places", PLACES)
def test_kerple_scores_by_the_formula(places):
    q, k, positions = queries_and_keys(places)
    scheme = small("kerple")
    with torch.no_grad():
        scheme.r1.copy_(torch.tensor([0.7, 1.3, 0.02]))
        scheme.r2.copy_(torch.tensor([0.2, 0.04, 0.9]))

    def logit(batch, head, i, j):
        bias = -scheme.r1[head] * torch.log(1 + scheme.r2[head] * (positions[i] - positions[j]))
        return plain_product(q, k, batch, head, i, j) + bias

    assert_same_scores(scores(scheme, q, k, positions), pair_by_pair(logit), [q, k, scheme.r1, scheme.r2])


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("threshold", [4 / L, 1.0])
def test_fire_scores_by_the_formula(threshold, places):
    """Ours adds 1e-6 to the denominator, as the authors' code does: some 1e-6 of the quotient."""
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
