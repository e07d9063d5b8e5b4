"""KERPLE, logarithmic kind (Chi et al. 2022, arXiv 2205.09921): b_h(t) = -r1_h log(1 + r2_h t).

r1 and r2 are positive and learned for each head: as in the authors' code, the amount of a parameter and
0.01 at least. Theirs start uniformly in [0, 2] and [0, 1]; ours at the middles of as many equal parts as
there are heads, r2 falling as r1 rises, so that no run depends on the luck of a draw.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poslab.config import Options
from poslab.positions import Geometry, Scheme

LEAST = 0.01


class KERPLEOptions(Options):
    pass


class KERPLE(Scheme):
    options_class = KERPLEOptions

    def __init__(self, options: KERPLEOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        spread = (torch.arange(geometry.heads) + 0.5) / geometry.heads
        self.r1 = nn.Parameter(2 * spread)
        self.r2 = nn.Parameter(1 - spread)

    def bias(self, distance: Int[Tensor, "N"]) -> Float[Tensor, "H N"]:
        r1, r2 = (r.abs().clamp(min=LEAST)[:, None] for r in (self.r1, self.r2))
        return -r1 * torch.log1p(r2 * distance)
