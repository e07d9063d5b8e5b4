"""Rotary positions (Su et al. 2021, arXiv 2104.09864, section 3.2; bases: Xu et al. 2024, Liu et al. 2023).

Pair c of W numbers turns by p * theta_c at position p, theta_c = base^(-2c/W): c = 0 turns fastest, one
radian per token. A pair is (c, c + W/2) under pairing "half" and (2c, 2c + 1) under "interleaved"; the two
are the same scheme up to a permutation of the width.
"""

from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Complex, Float, Int
from pydantic import Field
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.compiler import is_compiling

from poslab.config.schema import ConfigError, Options
from poslab.model.positions import Geometry, Scheme
from poslab.model.rescaling import Rescaling

Pairing = Literal["half", "interleaved"]


class RoPEOptions(Options):
    base: float = Field(gt=0, description="pair c of W/2 turns by base^(-2c/W) radians per token")
    pairing: Pairing = Field(description="a pair is (c, c + W/2) under half, (2c, 2c + 1) under interleaved")


class RoPE(Scheme):
    """Plain RoPE. Subclasses override `scaled` (other frequencies) or `phases` (other positions)."""

    options_class: ClassVar[type[Options]] = RoPEOptions
    two_sided = True
    options: RoPEOptions
    rescaling: Rescaling | None = None

    def __init__(self, options: RoPEOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        self.refuse_odd_heads()

    @property
    def length_dependent(self) -> bool:
        return self.rescaling is not None and self.rescaling.length_dependent

    def rotate(self, x: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B H T W"]:
        return turn(x, self.phases(x.shape[-1], positions), self.options.pairing)

    def phases(self, width: int, positions: Int[Tensor, "T"]) -> Float[Tensor, "T W/2"]:
        """Return the radians by which each pair turns at each position, float64."""
        return positions.double()[:, None] * self.frequencies(width, positions)

    def frequencies(self, width: int, positions: Int[Tensor, "T"]) -> Float[Tensor, "W/2"]:
        """Return the radians per token of each pair in a sequence with these positions, float64."""
        pairs = torch.arange(0, width, 2, device=positions.device, dtype=torch.float64)
        theta: Tensor = self.options.base ** (-pairs / width)
        length = positions.amax() + 1
        theta = self.scaled(theta, length)
        if self.rescaling is not None:
            theta = self.rescaling.frequencies(theta, length, self.geometry.context_length)
        return theta

    def relative_rotation(self, distance: Int[Tensor, "N"]) -> Complex[Tensor, "C N"] | None:
        theta = self.frequencies(self.geometry.head_width, torch.arange(self.geometry.context_length))
        return turns_at(theta, distance)

    def scaled(self, theta: Float[Tensor, "W/2"], length: Int[Tensor, ""]) -> Float[Tensor, "W/2"]:
        """Return the scheme's own frequencies in a sequence of `length` tokens, from those of plain RoPE."""
        return theta

    def query_key_scale(self) -> float:
        """Return the factor on queries and on keys under softmax."""
        return 1.0

    def logit_features(self, x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        scale = self.query_key_scale() * (1.0 if self.rescaling is None else self.rescaling.query_key_scale)
        return x if scale == 1 else x * scale

    @property
    def dropped(self) -> bool:
        """Whether a rescaling has switched the rotation off."""
        return self.rescaling is not None and self.rescaling.method == "drop"

    def can_rotate(self, width: int) -> bool:
        return width % 2 == 0

    def rescale(self, rescaling: Rescaling | None) -> bool:
        if rescaling is not None and rescaling.method == "yarn" and self.options.base <= 1:
            raise ConfigError(f"yarn needs a base above 1, not pos.base={self.options.base:g}")
        self.rescaling = rescaling
        return True


def turns_at(theta: Float[Tensor, "C"], distance: Int[Tensor, "N"]) -> Complex[Tensor, "C N"]:
    """Return exp(i t theta_c) for each pair c and distance t."""
    phase = theta.double()[:, None] * distance.double()
    return torch.polar(torch.ones_like(phase), phase)


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
