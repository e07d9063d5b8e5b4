"""ALiBi: a fixed penalty -m_h t on the logits (Press et al. 2022, arXiv 2108.12409, section 3)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poslab.config.schema import Options
from poslab.model.positions import Geometry, Scheme, Tail


def slopes(heads: int) -> list[float]:
    """Return m_h = 2^(-8h/H) for h = 1..H, or the slopes of the published rule if H is not a power of two.

    These are the slopes of the power of two below, then every second slope of the power of two above.
    """
    below = 1 << (heads.bit_length() - 1)
    geometric = [2 ** (-8 * (head + 1) / below) for head in range(below)]
    between = [2 ** (-8 * (head + 1) / (2 * below)) for head in range(0, 2 * below, 2)]
    return geometric + between[: heads - below]


class ALiBi(Scheme):
    two_sided = True  # -m_h |i - j|, symmetric
    slopes: Tensor

    def __init__(self, options: Options, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        fixed = torch.tensor(slopes(geometry.heads), dtype=torch.float64)
        self.register_buffer("slopes", fixed, persistent=False)

    def bias(self, distance: Int[Tensor, "N"]) -> Float[Tensor, "H N"]:
        return -self.slopes[:, None] * distance

    def tail(self) -> Tail:
        return Tail(0, -self.slopes)
