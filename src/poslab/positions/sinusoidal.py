"""Sinusoidal positions added to the input (Vaswani et al. 2017, section 3.5).

PE(p, 2c) = sin(p / base^(2c/D)),  PE(p, 2c+1) = cos(p / base^(2c/D))
"""

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from poslab.config import ConfigError, Options
from poslab.positions import Geometry, Scheme


class SinusoidalOptions(Options):
    base: float = Field(gt=0)


class Sinusoidal(Scheme):
    options_class = SinusoidalOptions
    options: SinusoidalOptions

    def __init__(self, options: SinusoidalOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        if geometry.width % 2:
            raise ConfigError(
                f"pos=sinusoidal pairs sines with cosines: model.width={geometry.width} must be even"
            )

    def embed(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        scale: float = self.geometry.width**0.5
        return x * scale + self.encoding(positions).to(x.dtype)

    def encoding(self, positions: Int[Tensor, "T"]) -> Float[Tensor, "T D"]:
        """The table's rows at `positions`, in float64: in float32 far positions lose their phase."""
        exponent = torch.arange(0, self.geometry.width, 2, device=positions.device, dtype=torch.float64)
        frequency = self.options.base ** (-exponent / self.geometry.width)
        phase = positions.double()[:, None] * frequency
        return torch.stack([phase.sin(), phase.cos()], dim=-1).flatten(-2)
