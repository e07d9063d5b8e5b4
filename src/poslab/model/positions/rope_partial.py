"""Partial RoPE (GPT-NeoX, Black et al. 2022, arXiv 2204.06745): the first `fraction` of the width turns.

The part that turns has the frequencies of a head of its width; the rest carries no position.
"""

import torch
from jaxtyping import Complex, Float, Int
from pydantic import Field
from torch import Tensor

from poslab.config.schema import ConfigError
from poslab.model.positions import Geometry
from poslab.model.positions.rope import RoPE, RoPEOptions, turns_at


class PartialOptions(RoPEOptions):
    fraction: float = Field(gt=0, lt=1, description="share of a head's width that turns")


class PartialRoPE(RoPE):
    options_class = PartialOptions
    options: PartialOptions

    def __init__(self, options: PartialOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        if not self.can_rotate(geometry.head_width):
            raise ConfigError(
                f"pos.fraction={options.fraction:g} of heads {geometry.head_width} wide is "
                f"{self._turned(geometry.head_width)}, but only pairs can be rotated: "
                "choose one that gives an even number above 0"
            )

    def rotate(self, x: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B H T W"]:
        width = self._turned(x.shape[-1])
        return torch.cat([super().rotate(x[..., :width], positions), x[..., width:]], dim=-1)

    def relative_rotation(self, distance: Int[Tensor, "N"]) -> Complex[Tensor, "C N"]:
        width = self.geometry.head_width
        turned = self.frequencies(self._turned(width), torch.arange(self.geometry.context_length))
        still = turned.new_zeros(width // 2 - turned.shape[0])
        return turns_at(torch.cat([turned, still]), distance)

    def can_rotate(self, width: int) -> bool:
        turned = self._turned(width)
        return turned > 0 and turned % 2 == 0

    def _turned(self, width: int) -> int:
        return int(width * self.options.fraction)
