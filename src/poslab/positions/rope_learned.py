"""RoPE and a learned vector for each of the L training positions: a scheme that acts in two places."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poslab.positions import Geometry
from poslab.positions.rope import RoPE, RoPEOptions


class RoPEWithLearned(RoPE):
    options_class = RoPEOptions

    def __init__(self, options: RoPEOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        self.table = nn.Parameter(torch.empty(geometry.context_length, geometry.width))

    @property
    def max_length(self) -> int:
        return self.geometry.context_length

    @property
    def shift_invariant(self) -> bool:
        return False

    def embed(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        return x if self.dropped else x + self.table[positions]
