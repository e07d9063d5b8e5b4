"""Pairs of numbers turned by an angle each: the rotation of queries and keys, by positions or by content.

Shapes: B batch, H heads, T tokens, W width of the vectors that are turned.
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
    """Turn each pair of x by its phase (float64), in float32 at least."""
    # Phases and their cosines in float64: a float32 phase is off by 5e-3 at position 100,000.
    working = torch.promote_types(x.dtype, torch.float32)
    fixed = phase.ndim == 2 and not phase.requires_grad
    if fixed and x.device.type == "cpu" and x.dtype == working and not is_compiling():
        return _Turn.apply(x, _factors_of(phase, working, pairing, x.shape[1]))  # type: ignore[no-untyped-call]
    cos, sin = phase.cos().to(working), phase.sin().to(working)
    first, second = _pairs(x.to(working), pairing)
    turned = first * cos - second * sin, first * sin + second * cos
    return _joined(*turned, pairing).to(x.dtype)


def _pairs(x: Float[Tensor, "... W"], pairing: Pairing) -> tuple[Tensor, ...]:
    """Return views of the first and of the second number of each pair (... W/2)."""
    return x.chunk(2, dim=-1) if pairing == "half" else (x[..., 0::2], x[..., 1::2])


def _joined(first: Tensor, second: Tensor, pairing: Pairing) -> Float[Tensor, "... W"]:
    """Undo `_pairs`."""
    if pairing == "half":
        return torch.cat((first, second), dim=-1)
    return torch.stack((first, second), dim=-1).flatten(-2)


class _Factors:
    """The factors of a token's numbers: `cos` on the number itself, `sin` on the other number of its pair."""

    def __init__(
        self, phase: Float[Tensor, "T W/2"], dtype: torch.dtype, pairing: Pairing, heads: int
    ) -> None:
        self.phase = phase.clone()  # a scheme may change its own in place
        self.dtype, self.pairing, self.heads = dtype, pairing, heads
        cos, sin = phase.cos().to(dtype), phase.sin().to(dtype)
        self.cos = _joined(cos, cos, pairing).repeat(1, heads)  # (T, H W)
        self.sin = _joined(-sin, sin, pairing).repeat(1, heads)

    def are_of(self, phase: Float[Tensor, "T W/2"], dtype: torch.dtype, pairing: Pairing, heads: int) -> bool:
        alike = (self.dtype, self.pairing, self.heads) == (dtype, pairing, heads)
        return alike and torch.equal(self.phase, phase)


_last: _Factors | None = None


def _factors_of(phase: Float[Tensor, "T W/2"], dtype: torch.dtype, pairing: Pairing, heads: int) -> _Factors:
    """Return the factors of the last call where the phases are equal, as they mostly are in all layers."""
    global _last
    factors = _last
    if factors is None or not factors.are_of(phase, dtype, pairing, heads):
        factors = _last = _Factors(phase, dtype, pairing, heads)
    return factors


class _Turn(Function):
    """`turn` on a CPU, x cos + swapped(x) sin: one swap of the pairs and two passes over all numbers."""

    @staticmethod
    def forward(ctx: Any, x: Float[Tensor, "B H T W"], factors: _Factors) -> Float[Tensor, "B H T W"]:
        ctx.factors = factors
        return _turned(x, factors, factors.sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "B H T W"]) -> tuple[Tensor, None]:
        return _turned(gradient, ctx.factors, -ctx.factors.sin), None


def _turned(
    x: Float[Tensor, "B H T W"], factors: _Factors, sin: Float[Tensor, "T H*W"]
) -> Float[Tensor, "B H T W"]:
    """Turn x, laid out as (B, T, H, W), where the factors of a token are contiguous over all heads."""
    x = x.transpose(1, 2)
    heads, width = x.shape[2:]
    if factors.pairing == "half":  # halves of heads, each copied as one row
        order = torch.arange(2 * heads).view(heads, 2).flip(-1).flatten()
        swapped = x.reshape(*x.shape[:2], 2 * heads, width // 2).index_select(2, order)
    else:
        swapped = torch.stack(_pairs(x, factors.pairing)[::-1], dim=-1)
    output: Tensor = swapped.view(*x.shape[:2], heads * width)
    output.mul_(sin).addcmul_(x.flatten(-2), factors.cos)
    return output.view(x.shape).transpose(1, 2)
