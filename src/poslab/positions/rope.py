"""Rotary positions (Su et al. 2021, arXiv 2104.09864, section 3.2; bases: Xu et al. 2024, Liu et al. 2023).

Pair c of a head's width turns by p * theta_c at position p, theta_c = base^(-2c/K): c = 0 turns fastest,
one radian a token. A pair is (c, c + K/2) under pairing "half" and (2c, 2c + 1) under "interleaved";
the two are the same scheme up to a permutation of the width.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from poslab.config import ConfigError, Options
from poslab.positions import Geometry, Scheme


class RoPEOptions(Options):
    base: float = Field(gt=0)
    pairing: Literal["half", "interleaved"]


class RoPE(Scheme):
    options_class = RoPEOptions
    options: RoPEOptions

    def __init__(self, options: RoPEOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        if geometry.head_width % 2:
            raise ConfigError(
                f"pos=rope turns pairs, but model.width={geometry.width} over model.heads={geometry.heads} "
                f"gives heads of odd width {geometry.head_width}: choose an even one"
            )

    def frequencies(self, device: torch.device | None = None) -> Float[Tensor, "K/2"]:
        """theta_c in radians a token, float64."""
        pairs = torch.arange(0, self.geometry.head_width, 2, device=device, dtype=torch.float64)
        frequencies: Tensor = self.options.base ** (-pairs / self.geometry.head_width)
        return frequencies

    def rotate(self, x: Float[Tensor, "B H T K"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B H T K"]:
        # Phases in float64 and cast last: in float32 the cosine is off by 5e-3 at position 100,000.
        phase = positions.double()[:, None] * self.frequencies(positions.device)
        working = torch.promote_types(x.dtype, torch.float32)
        cos, sin = phase.cos().to(working), phase.sin().to(working)
        pairs = x.to(working)
        if self.options.pairing == "half":
            first, second = pairs.chunk(2, dim=-1)
            turned = torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)
        else:
            first, second = pairs[..., 0::2], pairs[..., 1::2]
            turned = torch.stack([first * cos - second * sin, first * sin + second * cos], dim=-1).flatten(-2)
        return turned.to(x.dtype)
