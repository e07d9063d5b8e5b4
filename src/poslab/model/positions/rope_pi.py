"""RoPE with position interpolation (Chen et al. 2023, arXiv 2306.15595): position p counts as p / factor."""

from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from poslab.model.positions.rope import RoPE, RoPEOptions
from poslab.model.rescaling import interpolated


class InterpolatedOptions(RoPEOptions):
    factor: float = Field(gt=1, description="positions are divided by this")


class InterpolatedRoPE(RoPE):
    options_class = InterpolatedOptions
    options: InterpolatedOptions

    def scaled(self, theta: Float[Tensor, "W/2"], length: Int[Tensor, ""]) -> Float[Tensor, "W/2"]:
        return interpolated(theta, self.options.factor)
