"""Faster products on a CPU equal PyTorch's functions, and so do their gradients."""

import pytest
import torch
from torch.nn import functional

from poslab.model.kernels import matmul
from poslab.model.kernels.matmul import GeluLinear, linear
from support.gradients import assert_same_with_gradients


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("strided", [True, False])
@pytest.mark.parametrize("shape", [(3, 5, 8), (7, 8), (1, 1, 8), (0, 5, 8)], ids=str)
def test_a_product_and_its_gradients_equal_pytorchs(shape, strided, with_bias):
    x = drawn(*shape[:-1], 2 * shape[-1])[..., ::2] if strided else drawn(*shape)
    leaves = [x.requires_grad_(), drawn(6, 8, seed=1).requires_grad_()]
    if with_bias:
        leaves.append(drawn(6, seed=2).requires_grad_())
    assert_same_with_gradients(linear(*leaves), functional.linear(*leaves), leaves, tolerance=1e-6)


def test_only_products_in_float32_use_the_faster_operator(monkeypatch):
    monkeypatch.setattr(matmul, "_one_dnn", lambda *arguments: pytest.fail("the operator is used"))
    monkeypatch.setattr(matmul, "_one_dnn_is_right", lambda: True)
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        x, weight = drawn(4, 8).to(dtype), drawn(6, 8, seed=1).to(dtype)
        assert torch.equal(linear(x, weight), functional.linear(x, weight))
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x.float(), weight.float()).dtype == torch.bfloat16


@pytest.mark.parametrize("frozen", ["input", "weight", "bias"])
def test_a_product_and_its_gelu_give_only_the_required_gradients(frozen):
    layer = GeluLinear(8, 32)
    leaves = {"input": drawn(3, 8).requires_grad_(), "weight": layer.weight, "bias": layer.bias}
    leaves[frozen].requires_grad_(False)
    output = layer(leaves["input"])
    output.sum().backward()
    assert [name for name, leaf in leaves.items() if leaf.grad is None] == [frozen]
    with torch.no_grad():  # at evaluation in one operator
        torch.testing.assert_close(layer(leaves["input"]), output.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("operator", [lambda x, weight: x, lambda x, *rest: 2 * x], ids=["other", "wrong"])
def test_an_operator_that_has_changed_is_not_used(operator, monkeypatch):
    layer, x = GeluLinear(8, 32), drawn(3, 8)
    monkeypatch.setattr(matmul, "_one_dnn", operator)
    monkeypatch.setattr(matmul, "_one_dnn_is_right", matmul._one_dnn_is_right.__wrapped__)
    assert torch.equal(linear(x, layer.weight, layer.bias), functional.linear(x, layer.weight, layer.bias))
    expected = functional.gelu(functional.linear(x, layer.weight, layer.bias), approximate="tanh")
    torch.testing.assert_close(layer(x), expected)


def test_the_operator_of_this_pytorch_is_used_if_it_exists():
    assert matmul._one_dnn is None or matmul._one_dnn_is_right()
