"""xPos (Sun et al. 2022, arXiv 2212.10554): RoPE whose pairs also decay with the distance.

Pair c of the query is multiplied by zeta_c^(p/scale_base) and of the key by zeta_c^(-p/scale_base),
zeta_c = (2c/W + gamma) / (1 + gamma): so its product gains zeta_c^(t/scale_base) at distance t, and the
slowest pairs decay least. The paper: gamma 0.4, scale_base 512, interleaved pairs.
"""

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from poslab.positions.rope import RoPE, RoPEOptions


class XPosOptions(RoPEOptions):
    gamma: float = Field(gt=0)
    scale_base: float = Field(gt=0, description="tokens")


class XPos(RoPE):
    options_class = XPosOptions
    options: XPosOptions

    def rotate_queries(
        self, q: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T W"]:
        return self.rotate(q, positions) * self._scales(q, positions)

    def rotate_keys(
        self, k: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T W"]:
        return self.rotate(k, positions) / self._scales(k, positions)

    def _scales(self, x: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]) -> Float[Tensor, "T W"]:
        pairs = torch.arange(0, x.shape[-1], 2, device=x.device, dtype=torch.float64) / x.shape[-1]
        zeta = (pairs + self.options.gamma) / (1 + self.options.gamma)
        # The product knows the difference of two positions alone: counted from the middle, neither is
        # extreme.
        middle = (positions[0] + positions[-1]).double() / 2
        scales = zeta ** ((positions.double() - middle)[:, None] / self.options.scale_base)
        both = scales.repeat(1, 2) if self.options.pairing == "half" else scales.repeat_interleave(2, dim=1)
        return both.to(x.dtype)
