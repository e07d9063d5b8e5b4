"""xPos (Sun et al. 2022, arXiv 2212.10554): RoPE with pairs that also decay with the distance.

Pair c of the query is multiplied by zeta_c^(p/scale_base) and that of the key by zeta_c^(-p/scale_base), with
zeta_c = (2c/W + gamma) / (1 + gamma). Their product gains zeta_c^(t/scale_base) at distance t, so the slowest
pairs decay least. The paper has gamma 0.4, scale_base 512 and interleaved pairs.
"""

import math
from typing import Any

import torch
from jaxtyping import Complex, Float, Int
from pydantic import Field
from torch import Tensor

from poslab.model.positions.rope import RoPE, RoPEOptions

HIGHEST_EXPONENT = 80.0  # the largest float32 is about exp(88)


class XPosOptions(RoPEOptions):
    gamma: float = Field(
        gt=0, description="pair c decays to (2c/W + gamma) / (1 + gamma) of itself in scale_base tokens"
    )
    scale_base: float = Field(gt=0, description="tokens over which a pair decays once (see gamma)")


class XPos(RoPE):
    options_class = XPosOptions
    two_sided = False  # a pair would grow with the distance to a key ahead
    options: XPosOptions

    @property
    def max_length(self) -> int:
        """The most tokens for which the scales, counted from the sequence's middle, fit into float32."""
        return int(2 * HIGHEST_EXPONENT * self.options.scale_base / -math.log(self._zeta(0)))

    def rotate_queries(
        self, q: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T W"]:
        return self.rotate(q, positions) * self._scales(q, positions)

    def rotate_keys(
        self, k: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T W"]:
        return self.rotate(k, positions) / self._scales(k, positions)

    def relative_rotation(self, distance: Int[Tensor, "N"]) -> Complex[Tensor, "C N"] | None:
        turned = super().relative_rotation(distance)
        if turned is None or self.dropped:
            return turned
        pairs = torch.arange(turned.shape[0], dtype=torch.float64)
        zeta = self._zeta(pairs / turned.shape[0])[:, None]
        return turned * zeta ** (distance.double() / self.options.scale_base)

    def _zeta(self, share: Any) -> Any:
        return (share + self.options.gamma) / (1 + self.options.gamma)

    def _scales(self, x: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]) -> Float[Tensor, "T W"]:
        if self.dropped:
            return torch.ones_like(x[0, 0])
        pairs = torch.arange(0, x.shape[-1], 2, device=x.device, dtype=torch.float64)
        zeta = self._zeta(pairs / x.shape[-1])
        # A score depends only on the difference of two positions. Counted from the middle of the sequence,
        # neither scale is extreme.
        middle = (positions[0] + positions[-1]).double() / 2
        scales = zeta ** ((positions.double() - middle)[:, None] / self.options.scale_base)
        half = self.options.pairing == "half"
        wide = scales.repeat(1, 2) if half else scales.repeat_interleave(2, dim=1)
        return wide.to(x.dtype)
