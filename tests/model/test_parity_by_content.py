"""Scores that depend on the content of tokens, compared with the papers' formulas, pair by pair.

Shapes: B batch, T tokens, H heads, K head width.
"""

import math
from functools import cache

import pytest
import torch
from torch.nn.functional import elu, logsigmoid, softplus

from poslab.config.schema import ConfigError
from poslab.model.attention import Site, build_attention
from poslab.model.positions import wall
from support.formulas import (
    HEADS,
    PLACES,
    THETA,
    TOKENS,
    WIDTH,
    assert_same_scores,
    assert_scores_are,
    given,
    pair_by_pair,
    plain_product,
    queries_and_keys,
    turned_logit,
)
from support.gradients import assert_same_with_gradients
from support.pairwise import all_pairs
from support.parity import L, close, scores


def fox_logit(scheme, q, k, x, positions):
    @cache
    def gate(batch, head, token):
        return logsigmoid(scheme.weight[head] @ x[batch, token] + scheme.offset[head])

    def logit(batch, head, i, j):
        forgotten = sum(gate(batch, head, token) for token in range(j + 1, i + 1))
        return plain_product(q, k, batch, head, i, j) + forgotten

    return logit


def wall_logit(scheme, q, k, x, positions):
    gates = (x @ scheme.weight.T + scheme.offset).sigmoid().reshape(2, TOKENS, HEADS, WIDTH)

    def logit(batch, head, i, j):
        kept = torch.ones(WIDTH, dtype=torch.float64)
        for token in range(j + 1, i + 1):
            kept = kept * gates[batch, token, head]
        return (q[batch, head, i] * k[batch, head, j] * kept).sum() / math.sqrt(WIDTH)

    return logit


def test_wall_handles_gates_that_underflow():
    """Channels that forget everything at once: their exponents are far below those of float32."""
    scheme, x, leaves = given("wall", offset=8.0)
    q, k, positions = queries_and_keys("consecutive")
    ours = scores(scheme, q.float(), 3 * k.float(), positions, 1000 * x.float())
    assert ours.tril().isfinite().all()
    gradients = torch.autograd.grad(ours[ours.isfinite()].sum(), [q, k, *leaves])
    assert all(gradient.isfinite().all() for gradient in gradients)
    plain = (q * 3 * k).sum(-1) / math.sqrt(WIDTH)
    close(ours.diagonal(dim1=-2, dim2=-1).double(), plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunk", [1, 4, 64])
def test_wall_with_linear_equals_gated_linear_attention(chunk):
    """One gate and one token at a time, on channels of elu + 1; and by rows of weights."""
    q, k, positions = queries_and_keys("consecutive")
    scheme, x, leaves = given("wall", offset=1.0)
    v = torch.randn(2, HEADS, TOKENS, WIDTH, dtype=torch.float64, requires_grad=True)
    attend = build_attention({"kind": "linear"}, scheme.geometry, scheme)
    attend.chunk = chunk
    gates = (x @ scheme.weight.T + scheme.offset).sigmoid().unflatten(-1, (HEADS, WIDTH))
    features = [elu(tensor) + 1 for tensor in (q, k)]
    state, under, rows = torch.zeros_like(q.mT @ v), torch.zeros_like(q[..., 0, :, None]), []
    for token in range(TOKENS):
        kept = gates[:, token, :, :, None]
        query, key = (feature[..., token, :, None] for feature in features)
        state, under = kept * state + key @ v[..., token, None, :], kept * under + key
        rows.append((state.mT @ query / (under.mT @ query)).squeeze(-1))
    expected = torch.stack(rows, dim=-2)
    site = Site.of(scheme, positions, x)
    assert_same_with_gradients(attend.attend(q, k, v, site), expected, [q, k, v, *leaves])
    close(attend.weights(q, k, site) @ v, expected)


def path_logit(scheme, q, k, x, positions):
    """Apply the reflection I - beta w w^T of each token, one by one."""
    read = x @ scheme.reduce.T @ scheme.expand.T

    @cache
    def reflection(batch, head, token):
        of_head = slice(head * WIDTH, (head + 1) * WIDTH)
        weights = scheme.convolution[of_head]  # the last is the token's own
        total = sum(
            read[batch, token - back, of_head] * weights[:, 2 - back] for back in range(min(3, token + 1))
        )
        w = total * total.sigmoid()
        w = w / (w @ w).sqrt()
        beta = 2 * (scheme.weight[head] @ x[batch, token] + scheme.offset[head]).sigmoid()
        return torch.eye(WIDTH, dtype=torch.float64) - beta * torch.outer(w, w)

    def logit(batch, head, i, j):
        key = k[batch, head, j]
        for token in range(j + 1, i + 1):
            key = reflection(batch, head, token) @ key
        return q[batch, head, i] @ key / math.sqrt(WIDTH)

    return logit


def selective_rope_logit(scheme, q, k, x, positions):
    activation, gated, base = (getattr(scheme.options, name) for name in ("activation", "gated", "base"))
    lengths = x.reshape(2, TOKENS, HEADS, WIDTH).square().sum(dim=-1).sqrt()
    unit = x / lengths.repeat_interleave(WIDTH, dim=-1)
    read = unit @ scheme.reduce.T @ scheme.expand.T
    temperatures = [base ** (-2 * c / WIDTH) for c in range(WIDTH // 2)]
    temperatures = torch.tensor(temperatures, dtype=torch.float64)

    @cache
    def step(batch, head, token):
        of_head = slice(head * WIDTH // 2, (head + 1) * WIDTH // 2)
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

    def angle(batch, head, i):
        return temperatures * sum(step(batch, head, token) for token in range(i + 1))

    return turned_logit(q, k, angle)


def carope_logit(scheme, q, k, x, positions):
    @cache
    def step(batch, head, token):
        frequency = 1 / (softplus(scheme.weight[head] @ x[batch, token]) + 1)
        return torch.stack([frequency**c for c in range(WIDTH // 2)])

    return turned_logit(q, k, lambda batch, head, i: sum(step(batch, head, t) for t in range(i + 1)))


def repo_logit(scheme, q, k, x, positions):
    assert len(scheme.gate) == HEADS * WIDTH // 8

    def angle(batch, head, token):
        gate = scheme.gate @ x[batch, token]
        hidden = gate * gate.sigmoid() * (scheme.content @ x[batch, token])
        return scheme.assign[head] @ hidden * torch.tensor(THETA, dtype=torch.float64)

    return turned_logit(q, k, angle)


def inkling_logit(scheme, q, k, x, positions):
    assert scheme.profiles.shape == (5, 5)

    def logit(batch, head, i, j):
        plain = plain_product(q, k, batch, head, i, j)
        distance = int(positions[i] - positions[j])
        if distance >= 5:
            return plain
        mixed = scheme.read[5 * head : 5 * head + 5] @ x[batch, i]
        return plain + mixed @ scheme.profiles[:, distance]

    return logit


SELECTIVE = [
    {"rank": 5, "activation": activation, "gated": gated, "base": base}
    for activation, gated, base in all_pairs(["silu", "none"], [True, False], [500000.0, 50.0])
]
# Only Inkling's bias reads the positions.
FORMULAS = [
    (fox_logit, "fox", {}, "scattered"),
    (wall_logit, "wall", {"offset": 8.0}, "scattered"),
    (path_logit, "path", {"rank": 5}, "scattered"),
    (carope_logit, "carope", {}, "scattered"),
    (repo_logit, "repo", {"base": 10000.0}, "scattered"),
    *((inkling_logit, "inkling", {"rank": 5, "extent": 5 / L}, places) for places in PLACES),
    *((selective_rope_logit, "selective_rope", options, "scattered") for options in SELECTIVE),
]


@pytest.mark.parametrize(("formula", "name", "options", "places"), FORMULAS)
def test_scores_by_the_formula(formula, name, options, places, monkeypatch):
    monkeypatch.setattr(wall, "BLOCK", 4)  # so that keys are in a block and before it
    assert_scores_are(formula, name, options, places)


END, TEXT = 9, [[5, 9, 1, 2, 9, 9, 3, 4, 5, 6, 7], [9, 1, 9, 2, 3, 4, 5, 6, 7, 8, 9]]
SEGMENTS = [[0, 0, 1, 1, 1, 2, 3, 3, 3, 3, 3], [0, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]]
IN_SEGMENT = [[0, 1, 0, 1, 2, 0, 0, 1, 2, 3, 4], [0, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7]]


@pytest.mark.parametrize(
    "options", [{"between": "rope", "constant": 100.0}, {"between": "alibi", "constant": 3.0}]
)
def test_bipe_counts_within_segments_and_by_segment(options):
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

    theta = torch.tensor([100.0 ** (-2 * c / WIDTH) for c in range(WIDTH // 2)])
    rotated = turned_logit(q, k, lambda row, head, token: SEGMENTS[row][token] * theta.double())
    slopes = [2**-4, 2**-8, 2**-2]

    def logit(row, head, i, j):
        if options["between"] == "rope":
            return rotated(row, head, i, j)
        lost = 3.0 * slopes[head] * (SEGMENTS[row][i] - SEGMENTS[row][j])
        return q[row, head, i] @ k[row, head, j] / math.sqrt(WIDTH) - lost

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
