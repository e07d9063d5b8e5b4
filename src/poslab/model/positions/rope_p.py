"""p-RoPE (Barbero et al. 2024, arXiv 2410.06205): the slowest pairs do not turn.

The fastest `fraction` of the pairs turn by plain RoPE's frequencies; the others do not turn.
"""

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from poslab.config.schema import ConfigError
from poslab.model.positions import Geometry
from poslab.model.positions.rope import RoPE, RoPEOptions


class PRoPEOptions(RoPEOptions):
    fraction: float = Field(gt=0, lt=1, description="share of the pairs, the fastest ones, that turn")


class PRoPE(RoPE):
    options_class = PRoPEOptions
    options: PRoPEOptions

    def __init__(self, options: PRoPEOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        pairs = geometry.head_width // 2
        if not self.can_rotate(geometry.head_width):
            raise ConfigError(
                f"pos.fraction={options.fraction:g} of {pairs} pairs rotates {self._turned(pairs)}: "
                "choose one that rotates some but not all"
            )

    def frequencies(self, width: int, positions: Int[Tensor, "T"]) -> Float[Tensor, "W/2"]:
        theta = super().frequencies(width, positions)
        number = torch.arange(theta.shape[0], device=theta.device)
        return theta * (number < self._turned(theta.shape[0]))

    def can_rotate(self, width: int) -> bool:
        return width % 2 == 0 and 0 < self._turned(width // 2) < width // 2

    def _turned(self, pairs: int) -> int:
        return int(self.options.fraction * pairs)
