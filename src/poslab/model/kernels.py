"""Products and GELU as a CPU computes them fastest: PyTorch's functions, but for rounding.

On an accelerator, in half precision and inside a compiled block they are PyTorch's own, which is one kernel.
"""

import math
import platform
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

# PyTorch multiplies float32 on a CPU by MKL. oneDNN, a part of PyTorch too, is faster at the shapes of a GPT
# (on Zen 4 by a tenth to a third), but for the gradient of the weights. Other processors were not measured.
_one_dnn = None
if platform.machine() in ("x86_64", "AMD64") and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
    _one_dnn = getattr(torch.ops.mkldnn, "_linear_pointwise", None)


class Linear(nn.Linear):
    """A layer as PyTorch's: x W^T + b."""

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... N"]:
        return linear(x, self.weight, self.bias)

    def gelu(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... N"]:
        """`gelu` of the layer's output, in the same pass where no gradient is wanted."""
        if torch.is_grad_enabled() or not _by_one_dnn(x, self.weight):
            return gelu(self(x))
        output: Tensor = _one_dnn(x, self.weight, self.bias, "gelu", [], "tanh")  # type: ignore[misc]
        return output


def linear(
    x: Float[Tensor, "... D"], weight: Float[Tensor, "N D"], bias: Float[Tensor, "N"] | None = None
) -> Float[Tensor, "... N"]:
    """x W^T + b."""
    if not _by_one_dnn(x, weight):
        return nn.functional.linear(x, weight, bias)
    output: Tensor = _Product.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return output


def gelu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """GELU in GPT-2's form, with a tanh (Hendrycks and Gimpel 2016, section 2)."""
    if not _plain(x) or x.dtype.itemsize < 4:
        return nn.functional.gelu(x, approximate="tanh")
    output: Tensor = _Gelu.apply(x)  # type: ignore[no-untyped-call]
    return output


def _plain(x: Tensor) -> bool:
    """Whether x is on a CPU, outside of autocast and of a block that is being compiled."""
    chosen = torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling()
    return x.device.type == "cpu" and not chosen


def _by_one_dnn(x: Tensor, weight: Tensor) -> bool:
    return _one_dnn is not None and _plain(x) and x.dtype == weight.dtype == torch.float32 and x.numel() > 0


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
        output: Tensor = _one_dnn(x, weight, bias, "none", [], "")  # type: ignore[misc]
        return output

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, gradient: Float[Tensor, "... N"]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = _one_dnn(gradient, weight.t().contiguous(), None, "none", [], "")  # type: ignore[misc]
        rows = gradient.flatten(0, -2)
        if ctx.needs_input_grad[1]:
            of_weight = rows.t() @ x.flatten(0, -2)
        if ctx.needs_input_grad[2]:
            of_bias = rows.sum(dim=0)
        return of_x, of_weight, of_bias


class _Gelu(Function):
    """GELU with a tanh, as x sigmoid(2 c (x + a x^3)), and its derivative beside it, part by part.

    1 + tanh(y) = 2 sigmoid(2 y), and on a CPU PyTorch's sigmoid is several times as fast as its tanh. A part
    stays in the core's cache.
    """

    scale = 2 * (2 / math.pi) ** 0.5  # 2 c
    cubic = 0.044715  # a
    elements = 2**18  # of a part: 1 MiB in float32

    @staticmethod
    def forward(ctx: Any, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        scale, cubic = torch.tensor(_Gelu.scale, dtype=x.dtype), _Gelu.cubic
        output = torch.empty_like(x, memory_format=torch.contiguous_format)
        slope = torch.empty_like(output) if ctx.needs_input_grad[0] else None
        elements = min(_Gelu.elements, x.numel())
        buffers = x.new_empty(3, elements)  # used again for each part, so that they stay in the cache
        for start in range(0, x.numel(), max(1, elements)):
            part = x.reshape(-1)[start : start + elements]
            end = start + len(part)
            square, gate, rest = buffers[:, : len(part)]
            torch.mul(part, part, out=square)
            torch.add(scale, square, alpha=_Gelu.scale * cubic, out=gate).mul_(part).sigmoid_()
            result = torch.mul(part, gate, out=output.view(-1)[start:end])
            if slope is not None:  # gate + x gate (1 - gate) 2 c (1 + 3 a x^2)
                torch.addcmul(result, result, gate, value=-1, out=rest)
                growth = torch.add(scale, square, alpha=3 * _Gelu.scale * cubic, out=square)
                torch.addcmul(gate, rest, growth, out=slope.view(-1)[start:end])
        if slope is not None:
            ctx.save_for_backward(slope)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        slope: Tensor = ctx.saved_tensors[0]
        return gradient * slope
