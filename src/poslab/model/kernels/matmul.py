"""Faster matrix products and GELU in float32 on a CPU, equal to PyTorch's except for rounding.

On an accelerator, in half precision and in a compiled block, PyTorch's own functions are used.
"""

import math
import platform
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

# PyTorch multiplies float32 on a CPU by MKL. oneDNN, a part of PyTorch too, is faster at the shapes of a GPT
# (on Zen 4 by a tenth to a third), except for the weights' gradient. Other processors were not measured.
# The operator is private, and another version of PyTorch may lack it: see `_one_dnn_is_right`.
_one_dnn: Any = None
if platform.machine() in ("x86_64", "AMD64") and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
    _one_dnn = getattr(torch.ops.mkldnn, "_linear_pointwise", None)


SCALE = 2 * (2 / math.pi) ** 0.5  # 2 c of GELU
CUBIC = 0.044715  # a of GELU
ELEMENTS = 2**18  # numbers in a part that stays in the core's cache: 1 MiB in float32


class Linear(nn.Linear):
    """PyTorch's linear layer, x W^T + b, computed by `linear`."""

    rows: tuple[int, ...] = ()  # of each matrix, if W stacks several

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... N"]:
        return linear(x, self.weight, self.bias)


class GeluLinear(Linear):
    """GELU of a layer's output in GPT-2's form, with a tanh (Hendrycks and Gimpel 2016, section 2)."""

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... N"]:
        if _use_one_dnn(x, self.weight) and not torch.is_grad_enabled():
            return _one_dnn(x, self.weight, self.bias, "gelu", [], "tanh")
        wide = x.dtype == self.weight.dtype and x.dtype.itemsize >= 4
        if torch.is_grad_enabled() and wide and _plain(x) and x.numel() > 0:
            return _ProductGelu.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return nn.functional.gelu(nn.functional.linear(x, self.weight, self.bias), approximate="tanh")


def linear(
    x: Float[Tensor, "... D"], weight: Float[Tensor, "N D"], bias: Float[Tensor, "N"] | None = None
) -> Float[Tensor, "... N"]:
    """Return x W^T + b."""
    if not _use_one_dnn(x, weight):
        return nn.functional.linear(x, weight, bias)
    return _Product.apply(x, weight, bias)  # type: ignore[no-untyped-call]


def _plain(x: Tensor) -> bool:
    """Return whether x is on a CPU, outside autocast and outside a block that is being compiled."""
    special = torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling()
    return x.device.type == "cpu" and not special


def _use_one_dnn(x: Tensor, weight: Tensor) -> bool:
    fits = _plain(x) and x.dtype == weight.dtype == torch.float32 and x.numel() > 0
    return fits and _one_dnn is not None and _one_dnn_is_right()


@cache
def _one_dnn_is_right() -> bool:
    """Return whether oneDNN's operator agrees with PyTorch's functions, checked once."""
    x, weight = torch.linspace(-1, 1, 12, device="cpu", dtype=torch.float32).view(2, 2, 3)
    plain = nn.functional.linear(x, weight, x[0, :2])
    expected = plain, nn.functional.gelu(plain, approximate="tanh"), nn.functional.linear(x, weight)
    try:
        product = _one_dnn(x, weight, x[0, :2], "none", [], "")
        rounded = _one_dnn(x, weight, x[0, :2], "gelu", [], "tanh")
        results = product, rounded, _one_dnn(x, weight, None, "none", [], "")
        return all(torch.allclose(*pair, atol=1e-5) for pair in zip(results, expected, strict=True))
    except Exception:  # it takes other arguments
        return False


def _product(
    x: Float[Tensor, "... D"], weight: Float[Tensor, "N D"], bias: Float[Tensor, "N"] | None = None
) -> Float[Tensor, "... N"]:
    """Return x W^T + b, without a gradient."""
    if _use_one_dnn(x, weight):
        return _one_dnn(x, weight, bias, "none", [], "")
    return nn.functional.linear(x, weight, bias)


class _Product(Function):
    """x W^T + b and the gradient of x by oneDNN, that of W by MKL."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "... D"],
        weight: Float[Tensor, "N D"],
        bias: Float[Tensor, "N"] | None,
    ) -> Float[Tensor, "... N"]:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, gradient: Float[Tensor, "... N"]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        d_bias = gradient.flatten(0, -2).sum(dim=0) if ctx.needs_input_grad[2] else None
        return *_gradients(ctx, gradient, x, weight), d_bias


class _ProductGelu(Function):
    """gelu(x W^T + b). GELU overwrites the product, and b's gradient is summed from parts in the cache."""

    @staticmethod
    def forward(
        ctx: Any, x: Float[Tensor, "... D"], weight: Float[Tensor, "N D"], bias: Float[Tensor, "N"]
    ) -> Float[Tensor, "... N"]:
        output = _product(x, weight, bias)
        slope = torch.empty_like(output)
        _gelu(output.view(-1), slope.view(-1))
        ctx.save_for_backward(x, weight, slope)
        return output

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, gradient: Float[Tensor, "... N"]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight, slope = ctx.saved_tensors
        inner = torch.empty_like(slope)  # the gradient of the product
        d_bias = weight.new_zeros(len(weight))
        rows = max(1, ELEMENTS // len(weight))
        parts = (tensor.flatten(0, -2).split(rows) for tensor in (gradient, slope, inner))
        for part, factor, output in zip(*parts, strict=True):
            d_bias += torch.mul(part, factor, out=output).sum(dim=0)
        return *_gradients(ctx, inner, x, weight), d_bias if ctx.needs_input_grad[2] else None


def _gradients(
    ctx: Any, gradient: Float[Tensor, "... N"], x: Float[Tensor, "... D"], weight: Float[Tensor, "N D"]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of a product's x and W, or None for one that autograd does not need."""
    d_x = d_weight = None
    if ctx.needs_input_grad[0]:
        d_x = _product(gradient, weight.t())
    if ctx.needs_input_grad[1]:
        d_weight = gradient.flatten(0, -2).t() @ x.flatten(0, -2)
    return d_x, d_weight


def _gelu(x: Float[Tensor, "E"], slope: Float[Tensor, "E"]) -> None:
    """Overwrite x with x sigmoid(2 c (x + a x^3)), and `slope` with its derivative, part by part.

    1 + tanh(y) = 2 sigmoid(2 y), and on a CPU PyTorch's sigmoid is several times as fast as its tanh.
    """
    scale = torch.tensor(SCALE, dtype=x.dtype)
    buffers = x.new_empty(2, min(ELEMENTS, len(x)))
    for start in range(0, len(x), ELEMENTS):
        part = x[start : start + ELEMENTS]
        gate, rest = buffers[:, : len(part)]
        d_argument = slope[start : start + len(part)]  # 2 c (1 + 3 a x^2)
        torch.addcmul(scale, part, part, value=3 * SCALE * CUBIC, out=d_argument)
        torch.addcmul(scale, part, part, value=SCALE * CUBIC, out=gate).mul_(part).sigmoid_()
        part.mul_(gate)
        torch.addcmul(part, part, gate, value=-1, out=rest)
        torch.addcmul(gate, rest, d_argument, out=d_argument)  # gate + x gate (1 - gate) 2 c (1 + 3 a x^2)
