"""Rotary positions (RoPE; Su et al. 2021, arXiv 2104.09864, section 3.2): pairs turn with the position.

Pair c of W numbers turns by p * theta_c at position p, theta_c = base^(-2c/W): c = 0 turns fastest, one
radian per token (other bases: Xu et al. 2024, Liu et al. 2023). A pair is (c, c + W/2) under pairing "half"
and (2c, 2c + 1) under "interleaved"; the two are the same scheme up to a permutation of the width.
"""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from poslab.config.schema import ConfigError, Options
from poslab.model.rescaling import Rescaling
from poslab.model.rotary import Rotary, RotaryOptions


class RoPEOptions(RotaryOptions):
    base: float = Field(gt=0, description="pair c of W/2 turns by base^(-2c/W) radians per token")


class RoPE(Rotary):
    """Plain RoPE. Subclasses override `scaled` (other frequencies) or `phases` (other positions)."""

    options_class: ClassVar[type[Options]] = RoPEOptions
    options: RoPEOptions

    def frequencies(self, width: int, positions: Int[Tensor, "T"]) -> Float[Tensor, "W/2"]:
        pairs = torch.arange(0, width, 2, device=positions.device, dtype=torch.float64)
        theta: Tensor = self.options.base ** (-pairs / width)
        return self.rescaled(self.scaled(theta, positions.amax() + 1), positions)

    def scaled(self, theta: Float[Tensor, "W/2"], length: Int[Tensor, ""]) -> Float[Tensor, "W/2"]:
        """Return the scheme's own frequencies in a sequence of `length` tokens, from those of plain RoPE."""
        return theta

    def rescale(self, rescaling: Rescaling | None) -> bool:
        if rescaling is not None and rescaling.method == "yarn" and self.options.base <= 1:
            raise ConfigError(f"yarn needs a base above 1, not pos.base={self.options.base:g}")
        return super().rescale(rescaling)
