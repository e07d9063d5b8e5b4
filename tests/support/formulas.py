"""Scores under a scheme compared with a paper's formula, one query and one key at a time.

Shapes: B batch, T tokens, H heads, K head width.
"""

import math

import torch

from support.gradients import assert_same_with_gradients
from support.parity import close, make_scheme, scattered, scores

HEADS, WIDTH, TOKENS = 3, 8, 11
PLACES = ["consecutive", "scattered"]
THETA = [10000.0 ** (-2 * c / WIDTH) for c in range(WIDTH // 2)]


def small(name, **options):
    return make_scheme(name, width=WIDTH, heads=HEADS, **options)


def given(name, **options):
    """Return the first layer of a scheme, the input of its projections, and the leaves of the gradients."""
    scheme = small(name, **options).layer(0)
    x = torch.randn(2, TOKENS, HEADS * WIDTH, dtype=torch.float64, requires_grad=True)
    return scheme, x, [*([x] if scheme.by_content else []), *scheme.parameters()]


def queries_and_keys(places):
    q, k = torch.randn(2, 2, HEADS, TOKENS, WIDTH, dtype=torch.float64)
    positions = torch.arange(TOKENS) if places == "consecutive" else scattered(TOKENS, 3000)
    return q.requires_grad_(), k.requires_grad_(), positions


def pair_by_pair(logit):
    """Return scores with the entry logit(b, h, i, j) for j <= i, and -inf for later keys."""
    ahead = torch.tensor(-torch.inf, dtype=torch.float64)
    return torch.stack(
        [
            logit(batch, head, i, j) if j <= i else ahead
            for batch in range(2)
            for head in range(HEADS)
            for i in range(TOKENS)
            for j in range(TOKENS)
        ]
    ).reshape(2, HEADS, TOKENS, TOKENS)


def plain_product(q, k, batch, head, i, j):
    return q[batch, head, i] @ k[batch, head, j] / math.sqrt(WIDTH)


def assert_same_scores(ours, expected, leaves, tolerance=1e-10):
    """Compare the scores of the keys up to each query, and their gradients."""
    close(ours, expected, rtol=tolerance, atol=tolerance)
    causal = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    assert_same_with_gradients(ours[..., causal], expected[..., causal], leaves, tolerance)


def assert_scores_are(formula, name, options, places):
    """Compare a scheme's scores and gradients with `formula(scheme, q, k, x, positions)`, pair by pair."""
    q, k, positions = queries_and_keys(places)
    scheme, x, leaves = given(name, **options)
    logit = formula(scheme, q, k, x, positions)
    assert_same_scores(scores(scheme, q, k, positions, x), pair_by_pair(logit), [q, k, *leaves])


def complex_pairs(x, pairing):
    half = x.shape[-1] // 2
    first, second = (x[..., :half], x[..., half:]) if pairing == "half" else (x[..., 0::2], x[..., 1::2])
    return torch.complex(first, second)


def turned_logit(q, k, angle):
    """sum_c Re(q_c conj(k_c) e^(i (angle(i)_c - angle(j)_c))) / sqrt K, from angle(batch, head, token)."""
    z, w = complex_pairs(q, "half"), complex_pairs(k, "half")

    def logit(batch, head, i, j):
        phase = angle(batch, head, i) - angle(batch, head, j)
        products = z[batch, head, i] * w[batch, head, j].conj() * torch.exp(1j * phase)
        return products.real.sum() / math.sqrt(WIDTH)

    return logit
