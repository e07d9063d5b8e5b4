"""Scores and outputs against the papers' formulas, pair by pair, where the transformers library has no code.

Shapes: B batch, T tokens, H heads, K head width.
"""

import math
from functools import cache

import pytest
import torch
from torch.nn.functional import elu, logsigmoid, softplus

from poslab.config.schema import ConfigError, PairError
from poslab.model.attention import Site, build_attention
from poslab.model.positions import Geometry, build_scheme, wall
from support.models import ATTENTIONS, SCHEMES, make_gpt
from support.pairwise import pairwise
from support.parity import PAIRINGS, L, close, make_rope, make_scheme, scattered, scores

pytestmark = pytest.mark.usefixtures("seeded")


HEADS_HERE, WIDTH_HERE, TOKENS = 3, 8, 11
PLACES = ["consecutive", "scattered"]


def small(name, **options):
    return make_scheme(name, width=WIDTH_HERE, heads=HEADS_HERE, **options)


def small_rope(name="rope", **options):
    return make_rope(name, width=WIDTH_HERE, heads=HEADS_HERE, **options)


def queries_and_keys(places):
    q, k = torch.randn(2, 2, HEADS_HERE, TOKENS, WIDTH_HERE, dtype=torch.float64)
    positions = torch.arange(TOKENS) if places == "consecutive" else scattered(TOKENS, 3000)
    return q.requires_grad_(), k.requires_grad_(), positions


def pair_by_pair(logit):
    """The scores whose entry (b, h, i, j) is logit(b, h, i, j) for j <= i, and -inf ahead."""
    ahead = torch.tensor(-torch.inf, dtype=torch.float64)
    return torch.stack(
        [
            logit(batch, head, i, j) if j <= i else ahead
            for batch in range(2)
            for head in range(HEADS_HERE)
            for i in range(TOKENS)
            for j in range(TOKENS)
        ]
    ).reshape(2, HEADS_HERE, TOKENS, TOKENS)


def assert_same_scores(ours, expected, leaves, tolerance=1e-10):
    close(ours, expected, rtol=tolerance, atol=tolerance)
    causal = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    probe = torch.randn_like(ours)[..., causal]
    gradients = (torch.autograd.grad((x[..., causal] * probe).sum(), leaves) for x in (ours, expected))
    for our, their in zip(*gradients, strict=True):
        close(our, their, rtol=10 * tolerance, atol=10 * tolerance)
        assert their.abs().max() > 1e-3


def complex_pairs(x, pairing):
    half = x.shape[-1] // 2
    first, second = (x[..., :half], x[..., half:]) if pairing == "half" else (x[..., 0::2], x[..., 1::2])
    return torch.complex(first, second)


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
        return products.sum() / math.sqrt(WIDTH_HERE)

    return logit


THETA = [10000.0 ** (-2 * c / WIDTH_HERE) for c in range(WIDTH_HERE // 2)]


BASE = {"base": 10000.0}
ROTARY = {
    "rope": (BASE, THETA, float),
    "rope_p": (BASE | {"fraction": 0.75}, [*THETA[:3], 0.0], float),
    "hope": (BASE, [*THETA[:2], 0.0, 0.0], float),  # 2 pi / L is 0.098, and theta is 1, 0.1, 0.01, 0.001
    "rope_id": (  # from a turn in 4 tokens to 3 in 64; WIDTH_HERE has 4 pairs
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
    scheme = small_rope("xpos", pairing=pairing, gamma=gamma, scale_base=scale_base)
    zeta = [(2 * c / WIDTH_HERE + gamma) / (1 + gamma) for c in range(WIDTH_HERE // 2)]
    logit = rotary_logit(q, k, positions, pairing, THETA, zeta=zeta, scale_base=scale_base)
    assert_same_scores(scores(scheme, q, k, positions), pair_by_pair(logit), [q, k])


@pytest.mark.parametrize("places", PLACES)
def test_pope_scores_by_the_formula(places):
    q, k, positions = queries_and_keys(places)
    scheme = small("pope", base=10000.0)
    delta = scheme.delta.reshape(HEADS_HERE, WIDTH_HERE)
    theta = torch.tensor([10000.0 ** (-c / WIDTH_HERE) for c in range(WIDTH_HERE)], dtype=torch.float64)

    def logit(batch, head, i, j):
        magnitudes = softplus(q[batch, head, i]) * softplus(k[batch, head, j])
        phase = (positions[i] - positions[j]) * theta + delta[head]
        return (magnitudes * phase.cos()).sum() / math.sqrt(WIDTH_HERE)

    assert_same_scores(scores(scheme, q, k, positions), pair_by_pair(logit), [q, k, scheme.delta])


def fope_logit(scheme, q, k, positions):
    """sum_c Re(q_c f_c(i) conj(k_c f_c(j))) / sqrt K, f of a pair that turns a sum of waves, else 1."""
    cosines, sines = scheme.mixtures.double()
    z, w = complex_pairs(q, "half"), complex_pairs(k, "half")

    @cache
    def factors(head, position):
        pairs = []
        for c in range(WIDTH_HERE // 2):
            waves = [m for m in range(WIDTH_HERE // 2) if L * THETA[m] >= 2 * math.pi]
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
        return (query * key.conj()).real.sum() / math.sqrt(WIDTH_HERE)

    return logit


def drawn_fope(gain=2.0):
    scheme = small("fope", base=10000.0, gain=gain).layer(0)
    scheme.draw(torch.Generator().manual_seed(3))
    return scheme


@pytest.mark.parametrize("places", PLACES)
def test_fope_scores_by_the_formula(places):
    q, k, positions = queries_and_keys(places)
    scheme = drawn_fope()
    assert scheme.mixtures.shape == (2, HEADS_HERE, 2, 2)
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


def given(name, **options):
    """The first layer of a scheme, the input of its projections and its parameters."""
    scheme = small(name, **options).layer(0)
    x = torch.randn(2, TOKENS, HEADS_HERE * WIDTH_HERE, dtype=torch.float64, requires_grad=True)
    return scheme, x, [x, *scheme.parameters()]


def fox_gates():
    """FoX's scheme and input, log sigmoid(w_h x_t + b_h) one by one, and what they are made from."""
    scheme, x, leaves = given("fox")
    expected = [
        [
            [logsigmoid(scheme.weight[head] @ x[batch, t] + scheme.offset[head]) for t in range(TOKENS)]
            for head in range(HEADS_HERE)
        ]
        for batch in range(2)
    ]
    return scheme, x, expected, leaves


@pytest.mark.parametrize("places", PLACES)
def test_fox_scores_by_the_formula(places):
    q, k, positions = queries_and_keys(places)
    scheme, x, expected, leaves = fox_gates()

    def logit(batch, head, i, j):
        forgotten = sum(expected[batch][head][j + 1 : i + 1], start=torch.zeros((), dtype=torch.float64))
        return q[batch, head, i] @ k[batch, head, j] / math.sqrt(WIDTH_HERE) + forgotten

    assert_same_scores(scores(scheme, q, k, positions, x), pair_by_pair(logit), [q, k, *leaves])


@pytest.mark.parametrize("places", PLACES)
def test_wall_scores_by_the_formula(places, monkeypatch):
    """One gate at a time, in blocks of 4 queries so that keys lie in a block and before it."""
    monkeypatch.setattr(wall, "BLOCK", 4)
    q, k, positions = queries_and_keys(places)
    scheme, x, leaves = given("wall", offset=8.0)
    gates = (x @ scheme.weight.T + scheme.offset).sigmoid().reshape(2, TOKENS, HEADS_HERE, WIDTH_HERE)

    def logit(batch, head, i, j):
        kept = torch.ones(WIDTH_HERE, dtype=torch.float64)
        for token in range(j + 1, i + 1):
            kept = kept * gates[batch, token, head]
        return (q[batch, head, i] * k[batch, head, j] * kept).sum() / math.sqrt(WIDTH_HERE)

    assert_same_scores(scores(scheme, q, k, positions, x), pair_by_pair(logit), [q, k, *leaves])


def test_wall_takes_gates_that_underflow():
    """Channels that forget all at once: their exponents lie far below those that float32 has."""
    scheme, x, leaves = given("wall", offset=8.0)
    q, k, positions = queries_and_keys("consecutive")
    ours = scores(scheme, q.float(), 3 * k.float(), positions, 1000 * x.float())
    assert ours.tril().isfinite().all()
    gradients = torch.autograd.grad(ours[ours.isfinite()].sum(), [q, k, *leaves])
    assert all(gradient.isfinite().all() for gradient in gradients)
    plain = (q * 3 * k).sum(-1) / math.sqrt(WIDTH_HERE)
    close(ours.diagonal(dim1=-2, dim2=-1).double(), plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunk", [1, 4, 64])
def test_wall_under_linear_is_gated_linear_attention(chunk):
    """One gate and one token at a time, on channels of elu + 1; and by rows of weights."""
    q, k, positions = queries_and_keys("consecutive")
    scheme, x, leaves = given("wall", offset=1.0)
    v = torch.randn(2, HEADS_HERE, TOKENS, WIDTH_HERE, dtype=torch.float64, requires_grad=True)
    attend = build_attention({"kind": "linear"}, scheme.geometry, scheme)
    attend.chunk = chunk
    gates = (x @ scheme.weight.T + scheme.offset).sigmoid().unflatten(-1, (HEADS_HERE, WIDTH_HERE))
    features = [elu(tensor) + 1 for tensor in (q, k)]
    state, under, rows = torch.zeros_like(q.mT @ v), torch.zeros_like(q[..., 0, :, None]), []
    for token in range(TOKENS):
        kept = gates[:, token, :, :, None]
        query, key = (feature[..., token, :, None] for feature in features)
        state, under = kept * state + key @ v[..., token, None, :], kept * under + key
        rows.append((state.mT @ query / (under.mT @ query)).squeeze(-1))
    expected = torch.stack(rows, dim=-2)
    site = Site.of(scheme, positions, x)
    ours = attend.attend(q, k, v, site)
    close(ours, expected)
    close(attend.weights(q, k, site) @ v, expected)
    inputs = [q, k, v, *leaves]
    for gradient, known in zip(
        torch.autograd.grad(ours.square().sum(), inputs),
        torch.autograd.grad(expected.square().sum(), inputs),
        strict=True,
    ):
        close(gradient, known, atol=1e-12)


@pytest.mark.parametrize("places", PLACES)
def test_stick_breaking_weighs_by_the_formula(places):
    """One break after the other, from the nearest token on; the first token mixes nothing."""
    q, k, positions = queries_and_keys(places)
    scheme = small("stick_breaking").layer(0)
    attend = build_attention({"kind": "softmax"}, scheme.geometry, scheme)
    v = torch.randn(2, HEADS_HERE, TOKENS, WIDTH_HERE, dtype=torch.float64, requires_grad=True)
    rows = []
    for i in range(TOKENS):
        row, stick = torch.zeros_like(v[..., 0, :]), torch.ones_like(v[..., 0, :1])
        for j in reversed(range(i)):
            product = (q[..., i, :] * k[..., j, :]).sum(-1, keepdim=True)
            beta = (product / math.sqrt(WIDTH_HERE)).sigmoid()
            row, stick = row + stick * beta * v[..., j, :], stick * (1 - beta)
        rows.append(row)
    expected = torch.stack(rows, dim=-2)
    ours = attend.attend(q, k, v, Site.of(scheme, positions, torch.empty(0)))
    close(ours, expected, rtol=1e-10, atol=1e-10)
    probe = torch.randn_like(ours)
    gradients = (torch.autograd.grad((x * probe).sum(), [q, k, v]) for x in (ours, expected))
    for our, their in zip(*gradients, strict=True):
        close(our, their, rtol=1e-9, atol=1e-9)
        assert their.abs().max() > 1e-3


def test_stick_breaking_leaves_sinks_no_share():
    with pytest.raises(PairError, match=r"leave model\.sinks out"):
        make_gpt(SCHEMES["stick_breaking"], ATTENTIONS["softmax"], sinks=True)


def path_reflections(scheme, x):
    """(B, H, T, K, K): I - beta w w^T of each token, one by one."""
    read = x @ scheme.reduce.T @ scheme.expand.T

    def reflection(batch, head, token):
        of_head = slice(head * WIDTH_HERE, (head + 1) * WIDTH_HERE)
        weights = scheme.convolution[of_head]  # the last is the token's own
        total = sum(
            read[batch, token - back, of_head] * weights[:, 2 - back] for back in range(min(3, token + 1))
        )
        w = total * total.sigmoid()
        w = w / (w @ w).sqrt()
        beta = 2 * (scheme.weight[head] @ x[batch, token] + scheme.offset[head]).sigmoid()
        return torch.eye(WIDTH_HERE, dtype=torch.float64) - beta * torch.outer(w, w)

    return cache(reflection)


@pytest.mark.parametrize("places", PLACES)
def test_path_scores_by_the_formula(places):
    q, k, positions = queries_and_keys(places)
    scheme, x, leaves = given("path", rank=5)
    reflection = path_reflections(scheme, x)

    def logit(batch, head, i, j):
        key = k[batch, head, j]
        for token in range(j + 1, i + 1):
            key = reflection(batch, head, token) @ key
        return q[batch, head, i] @ key / math.sqrt(WIDTH_HERE)

    assert_same_scores(scores(scheme, q, k, positions, x), pair_by_pair(logit), [q, k, *leaves])


def turned_logit(q, k, angle):
    """sum_c Re(q_c conj(k_c) e^(i (angle(i)_c - angle(j)_c))) / sqrt K, from angle(batch, head, token)."""
    z, w = complex_pairs(q, "half"), complex_pairs(k, "half")

    def logit(batch, head, i, j):
        phase = angle(batch, head, i) - angle(batch, head, j)
        products = z[batch, head, i] * w[batch, head, j].conj() * torch.exp(1j * phase)
        return products.real.sum() / math.sqrt(WIDTH_HERE)

    return logit


def selective_rope_angles(scheme, x, activation, gated, base):
    unit = x / x.square().sum(dim=-1, keepdim=True).sqrt()
    read = unit @ scheme.reduce.T @ scheme.expand.T
    temperatures = [base ** (-2 * c / WIDTH_HERE) for c in range(WIDTH_HERE // 2)]
    temperatures = torch.tensor(temperatures, dtype=torch.float64)

    @cache
    def step(batch, head, token):
        of_head = slice(head * WIDTH_HERE // 2, (head + 1) * WIDTH_HERE // 2)
        weights = scheme.convolution[of_head]  # the last is the token's own
        seen = [
            (read[batch, token - back, of_head], weights[:, 3 - back]) for back in range(min(4, token + 1))
        ]
        total = sum(numbers * weight for numbers, weight in seen)
        if activation == "silu":
            total = total * total.sigmoid()
        if gated:
            total = total * (scheme.gate[head] @ unit[batch, token] + scheme.offset[head]).sigmoid()
        return total

    return lambda batch, head, i: temperatures * sum(step(batch, head, t) for t in range(i + 1))


@pairwise("activation, gated, base, places", ["silu", "none"], [True, False], [500000.0, 50.0], PLACES)
def test_selective_rope_scores_by_the_formula(activation, gated, base, places):
    q, k, positions = queries_and_keys(places)
    options = {"activation": activation, "gated": gated, "base": base}
    scheme, x, leaves = given("selective_rope", rank=5, **options)
    logit = turned_logit(q, k, selective_rope_angles(scheme, x, **options))
    assert_same_scores(scores(scheme, q, k, positions, x), pair_by_pair(logit), [q, k, *leaves])


def carope_angles(scheme, x):
    @cache
    def step(batch, head, token):
        frequency = 1 / (softplus(scheme.weight[head] @ x[batch, token]) + 1)
        return torch.stack([frequency**c for c in range(WIDTH_HERE // 2)])

    return lambda batch, head, i: sum(step(batch, head, token) for token in range(i + 1))


@pytest.mark.parametrize("places", PLACES)
def test_carope_scores_by_the_formula(places):
    q, k, positions = queries_and_keys(places)
    scheme, x, leaves = given("carope")
    logit = turned_logit(q, k, carope_angles(scheme, x))
    assert_same_scores(scores(scheme, q, k, positions, x), pair_by_pair(logit), [q, k, *leaves])


END, TEXT = 9, [[5, 9, 1, 2, 9, 9, 3, 4, 5, 6, 7], [9, 1, 9, 2, 3, 4, 5, 6, 7, 8, 9]]
SEGMENTS = [[0, 0, 1, 1, 1, 2, 3, 3, 3, 3, 3], [0, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]]
IN_SEGMENT = [[0, 1, 0, 1, 2, 0, 0, 1, 2, 3, 4], [0, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7]]


@pytest.mark.parametrize(
    "options", [{"between": "rope", "constant": 100.0}, {"between": "alibi", "constant": 3.0}]
)
def test_bipe_counts_in_segments_and_between_them(options):
    q, k, positions = queries_and_keys("consecutive")
    scheme, x, _ = given("bipe", rate=1.0, ends=[END, 40], context_length=6, **options)
    scheme.read_tokens(torch.tensor(TEXT))
    embedded = scheme.embed(x, positions)
    expected = [
        [x[row, token] + scheme.table[min(place, 5)] for token, place in enumerate(IN_SEGMENT[row])]
        for row in range(2)
    ]
    close(embedded, torch.stack([torch.stack(row) for row in expected]))
    (gradient,) = torch.autograd.grad(embedded.sum(), scheme.table)
    close(gradient[:, 0], torch.tensor([7.0, 5.0, 3.0, 2.0, 2.0, 3.0], dtype=torch.float64))

    theta = torch.tensor([100.0 ** (-2 * c / WIDTH_HERE) for c in range(WIDTH_HERE // 2)])
    rotated = turned_logit(q, k, lambda row, head, token: SEGMENTS[row][token] * theta.double())
    slopes = [2**-4, 2**-8, 2**-2]

    def logit(row, head, i, j):
        if options["between"] == "rope":
            return rotated(row, head, i, j)
        lost = 3.0 * slopes[head] * (SEGMENTS[row][i] - SEGMENTS[row][j])
        return q[row, head, i] @ k[row, head, j] / math.sqrt(WIDTH_HERE) - lost

    assert_same_scores(scores(scheme, q, k, positions, x), pair_by_pair(logit), [q, k], 1e-6)


@pytest.mark.parametrize(
    ("ends", "entries", "said"),
    [([256], 256, "0 to 255"), ([-1], 256, "0 to 255"), ([10, 46], 512, "bytes"), ([300, 7], 512, None)],
)
def test_bipe_ends_segments_at_tokens_of_the_vocabulary(ends, entries, said):
    scheme, _, _ = given("bipe", rate=1.0, ends=ends, between="rope", constant=100.0)
    if said is None:
        scheme.check_vocabulary(entries)
        return
    with pytest.raises(ConfigError, match=said):
        scheme.check_vocabulary(entries)


def test_bipe_without_tokens_is_refused():
    scheme, x, _ = given("bipe", rate=1.0, ends=[END], between="rope", constant=100.0)
    with pytest.raises(ValueError, match="read_tokens"):
        scheme.embed(x, torch.arange(TOKENS))


@pytest.mark.parametrize("places", PLACES)
def test_repo_scores_by_the_formula(places):
    q, k, positions = queries_and_keys(places)
    scheme, x, leaves = given("repo", base=10000.0)
    assert len(scheme.gate) == HEADS_HERE * WIDTH_HERE // 8

    def angle(batch, head, token):
        gate = scheme.gate @ x[batch, token]
        hidden = gate * gate.sigmoid() * (scheme.content @ x[batch, token])
        return scheme.assign[head] @ hidden * torch.tensor(THETA, dtype=torch.float64)

    logit = turned_logit(q, k, angle)
    assert_same_scores(scores(scheme, q, k, positions, x), pair_by_pair(logit), [q, k, *leaves])


@pytest.mark.parametrize("places", PLACES)
def test_inkling_scores_by_the_formula(places):
    q, k, positions = queries_and_keys(places)
    scheme, x, leaves = given("inkling", rank=5, extent=5 / L)
    assert scheme.profiles.shape == (5, 5)

    def logit(batch, head, i, j):
        plain = q[batch, head, i] @ k[batch, head, j] / math.sqrt(WIDTH_HERE)
        distance = int(positions[i] - positions[j])
        if distance >= 5:
            return plain
        mixed = scheme.read[5 * head : 5 * head + 5] @ x[batch, i]
        return plain + mixed @ scheme.profiles[:, distance]

    assert_same_scores(scores(scheme, q, k, positions, x), pair_by_pair(logit), [q, k, *leaves])


def test_cope_scores_by_the_formula():
    """One query and one key at a time; three of the sums are above the last number."""
    q, k, positions = queries_and_keys("consecutive")
    scheme = small("cope", positions=5).layer(0)

    def logit(batch, head, i, j):
        products = [q[batch, head, i] @ k[batch, head, m] / math.sqrt(WIDTH_HERE) for m in range(j, i + 1)]
        counted = sum(product.sigmoid() for product in products).clamp(max=4)
        low, high = math.floor(counted.item()), math.ceil(counted.item())
        vector = scheme.vectors[low] + (counted - low) * (scheme.vectors[high] - scheme.vectors[low])
        return products[0] + q[batch, head, i] @ vector / math.sqrt(WIDTH_HERE)

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
        return q[batch, head, i] @ k[batch, head, j] / math.sqrt(WIDTH_HERE) + bias

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
        return q[batch, head, i] @ k[batch, head, j] / math.sqrt(WIDTH_HERE) + bias

    leaves = [q, k, scheme.c, scheme.expand.weight, scheme.expand.bias, scheme.project.weight]
    if places == "consecutive":
        leaves.append(scheme.threshold)
    assert_same_scores(scores(scheme, q, k, positions), pair_by_pair(logit), leaves, tolerance=1e-5)
