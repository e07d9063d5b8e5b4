"""RoPE at warped positions, f(p) theta_c with f = sqrt(p) or log(1 + p).

A control: the score depends on more than the distance, since distances shrink as positions grow.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from poslab.model.positions.rope import RoPE, RoPEOptions

WARPS = {"sqrt": torch.sqrt, "log": torch.log1p}


class WarpedOptions(RoPEOptions):
    warp: Literal["sqrt", "log"] = Field(description="function of the position by which pairs turn")


class WarpedRoPE(RoPE):
    options_class = WarpedOptions
    shift_invariant = False
    options: WarpedOptions

    def relative_rotation(self, distance: Int[Tensor, "N"]) -> None:
        return None  # a pair's rotation depends on more than the distance

    def phases(self, width: int, positions: Int[Tensor, "T"]) -> Float[Tensor, "T W/2"]:
        warped: Tensor = WARPS[self.options.warp](positions.double())
        return warped[:, None] * self.frequencies(width, positions)
