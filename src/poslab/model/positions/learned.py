"""A learned vector for each of the L training positions, added to the input (GPT-2, GPT-3)."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poslab.model.positions import Geometry, LearnedOptions, Scheme


class Learned(Scheme):
    options_class: ClassVar[type[LearnedOptions]] = LearnedOptions
    two_sided = True
    shift_invariant = False
    options: LearnedOptions

    def __init__(self, options: LearnedOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        self.table = nn.Parameter(torch.empty(geometry.context_length, geometry.width))

    @property
    def max_length(self) -> int | None:
        return self.geometry.context_length

    def embed(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        return x + self.table[positions]
