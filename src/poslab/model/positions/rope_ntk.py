"""RoPE with NTK-aware scaling (arXiv 2309.00071, section 3.1): base * factor^(W/(W-2)).

The fastest pair turns as before, the slowest `factor` times slower.
"""

from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from poslab.config.schema import ConfigError
from poslab.model.positions import Geometry
from poslab.model.positions.rope import RoPE, RoPEOptions
from poslab.model.rescaling import ntk


class NTKOptions(RoPEOptions):
    factor: float = Field(
        gt=1, description="the base grows so that the slowest pair turns this many times slower"
    )


class NTKRoPE(RoPE):
    options_class = NTKOptions
    options: NTKOptions

    def __init__(self, options: NTKOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        if geometry.head_width == 2:
            raise ConfigError(
                f"pos.scheme={self.name} leaves the fastest pair unchanged, and heads 2 wide have no other: "
                "choose wider heads"
            )

    def scaled(self, theta: Float[Tensor, "W/2"], length: Int[Tensor, ""]) -> Float[Tensor, "W/2"]:
        return ntk(theta, self.options.factor)
