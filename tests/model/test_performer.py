"""Performer's random features: their estimate and their directions."""

import math

import pytest
import torch

from poslab.model.attention import build_attention
from support.parity import close, make_scheme

HEADS, WIDTH, TOKENS = 3, 8, 11


def performer(features, heads=1):
    scheme = make_scheme("none", width=WIDTH, heads=heads)
    section = {"kind": "performer", "features": features}
    attention = build_attention(section, scheme.geometry, scheme).double()
    attention.draw(torch.Generator().manual_seed(0))
    return attention, scheme


BLOCKS = 4000  # blocks of directions, drawn independently: as many independent estimates


def test_performers_features_estimate_the_softmax_kernel_without_bias():
    """The mean over all blocks is within 4.5 of its standard errors, which are below 2 %.

    Ours leaves out 1 / sqrt(features), and a constant for each query and one for all keys, which cancel in
    the quotient: feature 0 of every query and of the first key tells them.
    """
    q, k = torch.randn(2, 6, WIDTH, dtype=torch.float64) * 0.4
    attention, _ = performer(BLOCKS * WIDTH)

    def feature_0(x):
        scaled = x * WIDTH**-0.25
        return (scaled @ attention.omega[0] - scaled.square().sum(dim=-1) / 2).exp()

    phi_q, phi_k = attention.feature_map(q, True), attention.feature_map(k, False)
    phi_q = phi_q * (feature_0(q) / phi_q[:, 0])[:, None]
    phi_k = phi_k * (feature_0(k)[0] / phi_k[0, 0])
    blocks = (phi.unflatten(-1, (BLOCKS, WIDTH)) for phi in (phi_q, phi_k))
    estimates = torch.einsum("inc,jnc->nij", *blocks) / WIDTH
    exact = (q @ k.T / math.sqrt(WIDTH)).exp()
    error = estimates.std(dim=0) / math.sqrt(BLOCKS)
    assert (error < 0.02 * exact).all()
    assert ((estimates.mean(dim=0) - exact).abs() < 4.5 * error).all()
    assert ((exact - 1).abs() > 20 * error).any()


@pytest.mark.parametrize("features", [6, 20, BLOCKS * WIDTH])
def test_performers_directions_are_orthogonal_in_blocks(features):
    attention, _ = performer(features)
    directions = torch.nn.functional.normalize(attention.omega, dim=-1)
    for block in directions.split(WIDTH)[-3:]:
        close(block @ block.T, torch.eye(len(block), dtype=torch.float64), atol=1e-12)
    if features > WIDTH:  # and no block equals the one before
        assert 0.1 < (directions[:8] @ directions[8:16].T).abs().max() < 1
