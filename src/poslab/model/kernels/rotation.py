"""The rotation of queries and keys, pair by pair, with angles by position or by content.

Shapes: B batch, H heads, T tokens, W width of the rotated vectors.
"""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.compiler import is_compiling

Pairing = Literal["half", "interleaved"]


def turn(
    x: Float[Tensor, "B H T W"],
    phase: Float[Tensor, "T W/2"] | Float[Tensor, "B H T W/2"],
    pairing: Pairing = "half",
) -> Float[Tensor, "B H T W"]:
    """Rotate each pair of x by its phase (radians, float64); the products are in float32 or wider."""
    # Phases and their cosines in float64: a float32 phase is off by 5e-3 at position 100,000.
    working = torch.promote_types(x.dtype, torch.float32)
    fixed = phase.ndim == 2 and not phase.requires_grad
    if fixed and x.device.type == "cpu" and x.dtype == working and not is_compiling():
        return _Turn.apply(x, phase, pairing)  # type: ignore[no-untyped-call]
    cos, sin = phase.cos().to(working), phase.sin().to(working)
    first, second = _pairs(x.to(working), pairing)
    turned = first * cos - second * sin, first * sin + second * cos
    return _joined(*turned, pairing).to(x.dtype)


def _pairs(x: Float[Tensor, "... W"], pairing: Pairing) -> tuple[Tensor, ...]:
    """Return views of the first and the second numbers of the pairs (... W/2)."""
    return x.chunk(2, dim=-1) if pairing == "half" else (x[..., 0::2], x[..., 1::2])


def _joined(first: Tensor, second: Tensor, pairing: Pairing) -> Float[Tensor, "... W"]:
    """Undo `_pairs`."""
    if pairing == "half":
        return torch.cat((first, second), dim=-1)
    return torch.stack((first, second), dim=-1).flatten(-2)


class _Turn(Function):
    """`turn` on a CPU, x cos + swapped(x) sin: one swap of the pairs and two passes over all numbers."""

    @staticmethod
    def forward(
        ctx: Any, x: Float[Tensor, "B H T W"], phase: Float[Tensor, "T W/2"], pairing: Pairing
    ) -> Float[Tensor, "B H T W"]:
        cos, sin = phase.cos().to(x.dtype), phase.sin().to(x.dtype)
        cos, sin = _joined(cos, cos, pairing), _joined(-sin, sin, pairing)
        ctx.save_for_backward(cos, sin)
        ctx.pairing = pairing
        return _turned(x, cos, sin, pairing)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "B H T W"]) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turned(gradient, cos, -sin, ctx.pairing), None, None


def _turned(
    x: Float[Tensor, "B H T W"], cos: Float[Tensor, "T W"], sin: Float[Tensor, "T W"], pairing: Pairing
) -> Float[Tensor, "B H T W"]:
    """Return x times `cos` plus the other number of each pair times `sin`.

    It works on the layout (B, T, H, W), where the factors of a token are contiguous over all heads.
    """
    x = x.transpose(1, 2)
    heads, width = x.shape[2:]
    if pairing == "half":  # halves of heads, each copied as one row
        order = torch.arange(2 * heads).view(heads, 2).flip(-1).flatten()
        swapped = x.reshape(*x.shape[:2], 2 * heads, width // 2).index_select(2, order)
    else:
        swapped = torch.stack(_pairs(x, pairing)[::-1], dim=-1)
    output: Tensor = swapped.view(*x.shape[:2], heads * width)
    output.mul_(sin.repeat(1, heads)).addcmul_(x.flatten(-2), cos.repeat(1, heads))
    return output.view(x.shape).transpose(1, 2)
