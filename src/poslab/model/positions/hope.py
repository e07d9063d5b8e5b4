"""High-frequency rotary positions (HoPE; Chen et al. 2024, arXiv 2410.21216): RoPE without its slow pairs.

A pair that turns less than once in the training length L does not turn at all:

    theta_c = base^(-2c/W) where base^(-2c/W) >= 2 pi / L, else 0

Such a pair never takes all of its angles in training, and would take new ones in longer texts. Under
Performer, W is the width of the features.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poslab.config.schema import ConfigError
from poslab.model.positions import Geometry, Scheme
from poslab.model.positions.rope import RoPE, RoPEOptions


class HoPE(RoPE):
    def __init__(self, options: RoPEOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        pairs, length = geometry.head_width // 2, geometry.context_length
        if turning_pairs(self, options.base) == pairs:
            raise ConfigError(
                f"pos.base={options.base:g} turns all {pairs} pairs once in context_length={length}, "
                f"so pos.scheme={self.name} would be RoPE: choose a larger base, or pos=rope"
            )

    def frequencies(self, width: int, positions: Int[Tensor, "T"]) -> Float[Tensor, "W/2"]:
        theta = super().frequencies(width, positions)
        turning = full_turns(self.options.base, width, self.geometry.context_length)
        return theta * (torch.arange(len(theta), device=theta.device) < turning)

    def can_rotate(self, width: int) -> bool:
        turning = full_turns(self.options.base, width, self.geometry.context_length)
        return width % 2 == 0 and 0 < turning < width // 2


def turning_pairs(scheme: Scheme, base: float) -> int:
    """Return how many pairs of a head turn at least once in the training length. Raise ConfigError if 0."""
    length = scheme.geometry.context_length
    turning = full_turns(base, scheme.geometry.head_width, length)
    if turning == 0:
        raise ConfigError(
            f"no pair turns once in context_length={length}, as pos.scheme={scheme.name} needs: choose a "
            "longer one, or pos=none"
        )
    return turning


def full_turns(base: float, width: int, length: int) -> int:
    """Return how many of the pairs of `width` numbers turn at least once in `length` tokens."""
    return sum(length * base ** (-number / width) >= 2 * math.pi for number in range(0, width, 2))
