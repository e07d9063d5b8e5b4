"""RoPE with dynamic NTK scaling (arXiv 2309.00071, section 3.3): NTK by the length l of the sequence.

s = factor l / L - (factor - 1), and s = 1 up to L: it trains like plain RoPE and differs from it only past L.
"""

from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from poslab.config.schema import ConfigError
from poslab.model.positions import Geometry
from poslab.model.positions.rope_ntk import NTKOptions, NTKRoPE
from poslab.model.rescaling import dynamic_ntk


class DynamicNTKOptions(NTKOptions):
    factor: float = Field(ge=1, description="s = factor l / L - (factor - 1) at length l past L")


class DynamicNTKRoPE(NTKRoPE):
    options_class = DynamicNTKOptions
    options: DynamicNTKOptions

    def __init__(self, options: DynamicNTKOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        if not geometry.consecutive:
            raise ConfigError(
                "pos.scheme=rope_dynamic scales past the training length, which random positions never pass: "
                "choose rope or rope_ntk"
            )

    @property
    def length_dependent(self) -> bool:
        return not self.dropped

    def scaled(self, theta: Float[Tensor, "W/2"], length: Int[Tensor, ""]) -> Float[Tensor, "W/2"]:
        return dynamic_ntk(theta, length, self.geometry.context_length, self.options.factor)
