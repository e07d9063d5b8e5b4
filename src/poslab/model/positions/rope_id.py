"""RoPE-ID (Wertheimer et al. 2026, arXiv 2603.18017): half of the pairs turn, all of them fast.

The first half of the pairs, c = 0, ..., N - 1, have frequencies in equal ratios, from one turn in `period`
tokens to `turns` turns in the training length L; the others do not turn:

    theta_c = (2 pi / period) (turns period / L)^(c / (N - 1))

Training shows these pairs all their angles (if `period` <= L and `turns` >= 1). The half that does not turn
keeps queries and keys apart. The half, one turn in 32 tokens and two turns in L are the authors' values, from
a summary of the paper and its reviews. Equal ratios in between, as in RoPE, are an assumption. Under
pos=rope_id_scaled the logits of queries past L grow as under YaRN, as in the authors' models.
"""

import math

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from poslab.config.schema import ConfigError, Options
from poslab.model.kernels.rotation import Pairing
from poslab.model.positions import Geometry
from poslab.model.positions.rope import RoPE
from poslab.model.rescaling import Rescaling


class RoPEIDOptions(Options):
    pairing: Pairing = Field(description="a pair is (c, c + W/2) under half, (2c, 2c + 1) under interleaved")
    period: float = Field(gt=0, description="tokens in which the first pair turns once")
    turns: float = Field(gt=0, description="how often the last turning pair turns in the training length")


class RoPEID(RoPE):
    options_class = RoPEIDOptions
    options: RoPEIDOptions  # type: ignore[assignment]  # without a base

    def __init__(self, options: RoPEIDOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)  # type: ignore[arg-type]
        if not self.can_rotate(geometry.head_width):
            raise ConfigError(
                f"heads {geometry.head_width} wide have too few pairs to rotate half of them, as "
                "pos.scheme=rope_id does: choose wider heads, or pos=rope"
            )

    def frequencies(self, width: int, positions: Int[Tensor, "T"]) -> Float[Tensor, "W/2"]:
        first = math.log(2 * math.pi / self.options.period)
        last = math.log(2 * math.pi * self.options.turns / self.geometry.context_length)
        number = width // 4
        theta = torch.linspace(first, last, number, dtype=torch.float64, device=positions.device).exp()
        if self.rescaling is not None:
            length = positions.amax() + 1
            theta = self.rescaling.frequencies(theta, length, self.geometry.context_length)
        return torch.cat((theta, theta.new_zeros(width // 2 - number)))

    def rescale(self, rescaling: Rescaling | None) -> bool:
        self.rescaling = rescaling
        return True

    def can_rotate(self, width: int) -> bool:
        return width % 2 == 0 and width >= 4
