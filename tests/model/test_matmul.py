"""Faster products and GELU on a CPU equal PyTorch's functions, and so do their gradients."""

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


@pytest.mark.parametrize("elements", [40, 2**18])
@pytest.mark.parametrize("shape", [(3, 5, 8), (7, 8), (0, 5, 8)], ids=str)
def test_gelu_fused_with_a_product_equals_gelu_after_it(shape, elements, monkeypatch):
    monkeypatch.setattr(matmul, "ELEMENTS", elements)  # the size of a part has no effect
    layer = GeluLinear(8, 32)
    leaves = [(10 * drawn(*shape)).requires_grad_(), *layer.parameters()]
    output = layer(leaves[0])
    expected = functional.gelu(functional.linear(*leaves), approximate="tanh")
    assert_same_with_gradients(output, expected, leaves, tolerance=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(layer(leaves[0]), output.detach(), rtol=1e-5, atol=1e-6)


def test_fused_gelu_is_right_for_large_inputs_and_to_float64_precision():
    layer = GeluLinear(1, 1).double()
    x = torch.cat([torch.linspace(-12, 12, 97), torch.tensor([-1e4, -40.0, 0.0, 40.0, 1e4])]).double()
    leaves = [x[:, None].requires_grad_(), *layer.parameters()]
    output = layer(leaves[0])
    expected = functional.gelu(functional.linear(*leaves), approximate="tanh")
    assert_same_with_gradients(output, expected, leaves, tolerance=1e-12)
    low = drawn(3, 1).bfloat16()
    expected = functional.gelu(functional.linear(low, *layer.bfloat16().parameters()), approximate="tanh")
    assert torch.equal(layer(low), expected)


@pytest.mark.parametrize("frozen", ["input", "weight", "bias"])
def test_fused_gelu_gives_only_the_required_gradients(frozen):
    layer = GeluLinear(8, 32)
    leaves = {"input": drawn(3, 8).requires_grad_(), "weight": layer.weight, "bias": layer.bias}
    leaves[frozen].requires_grad_(False)
    layer(leaves["input"]).sum().backward()
    assert [name for name, leaf in leaves.items() if leaf.grad is None] == [frozen]


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
