"""The kernel for a bias by content that ends after some tokens, against plain products."""

import pytest
import torch

from poslab.config.schema import PairError
from poslab.model.attention import Site, build_attention
from poslab.model.kernels import cpu_causal, near
from poslab.model.positions import ContentBias, Geometry, build_scheme
from support.models import ATTENTIONS, SCHEMES


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
    monkeypatch.setattr(near, "BLOCK", 16)
    monkeypatch.setattr(near, "LIVE", 3 * 16 * 32)  # one text at a time in backward
    torch.manual_seed(0)
    parts = [torch.randn(2, 3, length, 8, dtype=torch.float64) for _ in range(3)]
    parts += [torch.randn(2, 3, length, 4, dtype=torch.float64), torch.randn(4, extent, dtype=torch.float64)]
    parts = [part.requires_grad_() for part in parts]
    found, expected = near.NearBias.apply(*parts, 0.3), plain(*parts, 0.3)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
    upstream = torch.randn_like(found)
    gradients = (torch.autograd.grad(output, parts, upstream) for output in (found, expected))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


def flash_as_softmax(length, extent):
    """Flash attention gives what softmax gives, under a random bias by content; the kernel's name."""
    geometry = Geometry(32, 2, length, 1)
    torch.manual_seed(0)
    layer = build_scheme({**SCHEMES["inkling"], "extent": extent}, geometry).layer(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    x = torch.randn(1, length, 32)
    q, k, v = (torch.randn(1, 2, length, 16) for _ in range(3))
    site = Site.of(layer, torch.arange(length), x)
    mixers = [build_attention(ATTENTIONS[name], geometry, layer) for name in ("flash", "softmax")]
    found, expected = (mixer.attend(q, k, v, site) for mixer in mixers)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)
    return mixers[0].kernel


@pytest.mark.parametrize("missing", [False, True])
def test_long_texts_in_float32_and_without_the_private_operators(missing, monkeypatch):
    if missing:
        monkeypatch.setattr("poslab.model.attention.flash.available", lambda: False)
    elif not cpu_causal.available():
        pytest.skip("this PyTorch has no such kernel")
    kernel = flash_as_softmax(1500, 0.2)
    assert kernel == ("strips, checkpointed" if missing else "torch flash, near bias (cpu)")


def test_products_of_its_own_beside_a_bias_by_content_are_used(monkeypatch):
    layer = type(build_scheme(SCHEMES["inkling"], Geometry(32, 2, 64, 1)).layer(0))
    monkeypatch.setattr(layer, "products", lambda self, q, k, transitions, first: 3 * (q @ k.mT))
    monkeypatch.setattr(layer, "products_in_strips", True)
    assert flash_as_softmax(64, 0.2) == "strips, checkpointed"


def test_linear_attention_refuses_the_bias_in_a_window():
    geometry = Geometry(32, 2, 64, 1, window=16)
    layer = build_scheme(SCHEMES["inkling"], geometry).layer(0)
    with pytest.raises(PairError, match="attention=flash or softmax"):
        build_attention(ATTENTIONS["linear"], geometry, layer)
