"""Rotary positions (RoPE; Su et al. 2021, arXiv 2104.09864, section 3.2): pairs turn with the position.

Pair c of W components turns by p * theta_c at position p, with theta_c = base^(-2c/W): c = 0 turns fastest,
one radian per token (other bases: Xu et al. 2024, Liu et al. 2023). A pair is (c, c + W/2) with pairing
"half" and (2c, 2c + 1) with "interleaved"; both are the same scheme up to a permutation of the width.
"""

from typing import ClassVar

import torch
from jaxtyping import Complex, Float, Int
from pydantic import Field
from torch import Tensor

from poslab.config.schema import ConfigError, Options
from poslab.model.kernels.rotation import Pairing, turn
from poslab.model.positions import Geometry, Scheme
from poslab.model.rescaling import Rescaling


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
