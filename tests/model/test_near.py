"""The kernel for a bias by content with a limited reach, compared with plain products."""

import pytest

from poslab.model.kernels import strips
from support.attentions import Case, parts
from support.models import SCHEMES


@pytest.mark.parametrize(
    ("length", "extent"), [(5, 3), (40, 64), (64, 64), (70, 1), (70, 10), (70, 33), (129, 17)]
)
def test_output_and_every_gradient_equal_plain_products(length, extent, monkeypatch):
    monkeypatch.setattr(strips, "STRIP", 16)
    monkeypatch.setattr(strips, "LIVE", 3 * 16 * 32)  # one text at a time in backward
    Case({**SCHEMES["inkling"], "extent": extent / 1000}, length).check("flash")


@pytest.mark.parametrize(
    ("hook", "function"),
    [
        ("products", lambda self, q, k, transitions, first: 3 * (q @ k.mT)),
        ("bias", lambda self, distance: -distance.double().sqrt().expand(self.geometry.heads, -1)),
    ],
)
def test_another_hook_with_a_bias_by_content_is_used(hook, function, monkeypatch):
    layer = type(parts("inkling", "flash")[1])
    monkeypatch.setattr(layer, hook, function)
    monkeypatch.setattr(layer, "products_in_strips", True)
    Case("inkling", 64).check("flash")
