"""Sinusoidal positions added to the input (Vaswani et al. 2017, sections 3.4 and 3.5).

    x + amplitude PE,  PE(p, 2c) = sin(p / base^(2c/D)),  PE(p, 2c+1) = cos(p / base^(2c/D))

The paper's amplitude is 1 beside token embeddings x of unit variance: 1/sqrt(D), times sqrt(D) (section 3.4).
Here embeddings start with GPT-2's standard deviation of 0.02 under every scheme, so an amplitude of 0.02
keeps the paper's proportion; 0.0283, which gives the waves the mean square of x, trains better.
"""

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from poslab.config.schema import ConfigError, Options
from poslab.model.positions import Geometry, Scheme


class SinusoidalOptions(Options):
    base: float = Field(gt=0, description="wave c of D/2 is 2 pi base^(2c/D) tokens long")
    amplitude: float = Field(
        gt=0, description="amplitude of the waves; token embeddings start with standard deviation 0.02"
    )


class Sinusoidal(Scheme):
    options_class = SinusoidalOptions
    two_sided = True
    shift_invariant = False
    options: SinusoidalOptions

    def __init__(self, options: SinusoidalOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        if geometry.width % 2:
            raise ConfigError(
                f"pos=sinusoidal pairs sines with cosines: model.width={geometry.width} must be even"
            )

    def embed(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        return x + self.options.amplitude * self.encoding(positions).to(x.dtype)

    def encoding(self, positions: Int[Tensor, "T"]) -> Float[Tensor, "T D"]:
        """Return PE at `positions`, in float64: in float32 far positions lose their phase."""
        exponent = torch.arange(0, self.geometry.width, 2, device=positions.device, dtype=torch.float64)
        frequency = self.options.base ** (-exponent / self.geometry.width)
        phase = positions.double()[:, None] * frequency
        return torch.stack([phase.sin(), phase.cos()], dim=-1).flatten(-2)
