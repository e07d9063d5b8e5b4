"""What all rotations by fixed frequencies share: pair c of W numbers turns by p * theta_c at position p.

Shapes: B batch, H heads, T tokens, W width, K head width, C pairs, N distances.
"""

import torch
from jaxtyping import Complex, Float, Int
from pydantic import Field
from torch import Tensor

from poslab.config.schema import Options
from poslab.model.kernels.rotation import Pairing, turn
from poslab.model.positions import Geometry, Scheme
from poslab.model.rescaling import Rescaling


class RotaryOptions(Options):
    pairing: Pairing = Field(description="a pair is (c, c + W/2) under half, (2c, 2c + 1) under interleaved")


class Rotary(Scheme):
    """A rotation. A subclass gives `frequencies`."""

    two_sided = True
    options: RotaryOptions
    rescaling: Rescaling | None = None

    def __init__(self, options: RotaryOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        self.refuse_odd_heads()

    def frequencies(self, width: int, positions: Int[Tensor, "T"]) -> Float[Tensor, "W/2"]:
        """Return the radians per token of each pair in a sequence with these positions, float64."""
        raise NotImplementedError

    @property
    def length_dependent(self) -> bool:
        return self.rescaling is not None and self.rescaling.length_dependent

    def rotate(self, x: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B H T W"]:
        return turn(x, self.phases(x.shape[-1], positions), self.options.pairing)

    def phases(self, width: int, positions: Int[Tensor, "T"]) -> Float[Tensor, "T W/2"]:
        """Return the radians by which each pair turns at each position, float64."""
        return positions.double()[:, None] * self.frequencies(width, positions)

    def rescaled(self, theta: Float[Tensor, "C"], positions: Int[Tensor, "T"]) -> Float[Tensor, "C"]:
        """Return the frequencies that `rescale` asked for, or theta."""
        if self.rescaling is None:
            return theta
        return self.rescaling.frequencies(theta, positions.amax() + 1, self.geometry.context_length)

    def relative_rotation(self, distance: Int[Tensor, "N"]) -> Complex[Tensor, "C N"] | None:
        theta = self.frequencies(self.geometry.head_width, torch.arange(self.geometry.context_length))
        return turns_at(theta, distance)

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
        self.rescaling = rescaling
        return True


def turns_at(theta: Float[Tensor, "C"], distance: Int[Tensor, "N"]) -> Complex[Tensor, "C N"]:
    """Return exp(i t theta_c) for each pair c and distance t."""
    phase = theta.double()[:, None] * distance.double()
    return torch.polar(torch.ones_like(phase), phase)
