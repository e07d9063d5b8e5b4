"""The kernel for a bias by content that ends after some tokens, against plain products."""

import pytest
import torch

from poslab.model.kernels import near, strips
from poslab.model.positions import ContentBias
from support.attentions import Case
from support.attentions import parts as parts_of
from support.gradients import assert_same_with_gradients


def plain(q, k, v, r, table, scale):
    length = q.shape[-2]
    distance = torch.arange(length)[:, None] - torch.arange(length)
    bias = ContentBias(r, table).at(distance.clamp(min=0), 0)
    scores = (q @ k.mT) * scale + bias
    return scores.masked_fill(distance < 0, -torch.inf).softmax(dim=-1) @ v


@pytest.mark.parametrize(
    ("length", "extent"), [(5, 3), (40, 64), (64, 64), (70, 1), (70, 10), (70, 33), (129, 17)]
)
def test_output_and_every_gradient_are_those_of_plain_products(length, extent, monkeypatch):
    monkeypatch.setattr(strips, "STRIP", 16)
    monkeypatch.setattr(strips, "LIVE", 3 * 16 * 32)  # one text at a time in backward
    torch.manual_seed(0)
    parts = [torch.randn(2, 3, length, 8, dtype=torch.float64) for _ in range(3)]
    parts += [torch.randn(2, 3, length, 4, dtype=torch.float64), torch.randn(4, extent, dtype=torch.float64)]
    parts = [part.requires_grad_() for part in parts]
    found, expected = near.NearBias.apply(*parts, 0.3), plain(*parts, 0.3)
    assert_same_with_gradients(found, expected, parts, tolerance=1e-12)


def test_products_of_its_own_beside_a_bias_by_content_are_used(monkeypatch):
    layer = type(parts_of("inkling", "flash")[1])
    monkeypatch.setattr(layer, "products", lambda self, q, k, transitions, first: 3 * (q @ k.mT))
    monkeypatch.setattr(layer, "products_in_strips", True)
    Case("inkling", 64).check("flash")
