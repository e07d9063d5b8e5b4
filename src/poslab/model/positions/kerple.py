"""KERPLE, logarithmic kind (Chi et al. 2022, arXiv 2205.09921): b_h(t) = -r1_h log(1 + r2_h t).

r1 and r2 are learned for each head; below 0.01 they act as 0.01, but keep their gradients. The authors draw
the initial values uniformly from [0, 2] and [0, 1]. Here they are the centres of H equal parts of these
ranges, with r2 falling as r1 rises, so that no run depends on the luck of a draw.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poslab.model.positions import Geometry, LearnedOptions, Scheme

LEAST = 0.01


class KERPLE(Scheme):
    options_class = LearnedOptions
    two_sided = True  # a kernel of |i - j| (section 3)
    options: LearnedOptions

    def __init__(self, options: LearnedOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        spread = (torch.arange(geometry.heads) + 0.5) / geometry.heads
        self.r1 = nn.Parameter(2 * spread)
        self.r2 = nn.Parameter(1 - spread)

    def bias(self, distance: Int[Tensor, "N"]) -> Float[Tensor, "H N"]:
        r1, r2 = (_at_least(r)[:, None] for r in (self.r1, self.r2))
        return -r1 * torch.log1p(r2 * distance)


def _at_least(r: Float[Tensor, "H"]) -> Float[Tensor, "H"]:
    """Return max(r, LEAST) with the gradient of r, so that a value below LEAST can rise again."""
    return r + (r.clamp(min=LEAST) - r).detach()
