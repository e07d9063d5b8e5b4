"""Forgetting attention (FoX; Lin et al. 2025, arXiv 2503.02130): gates instead of positions.

    logit_ij += sum over l in (j, i] of log f_l,   f_t = sigmoid(w_h x_t + b_h)

for each head of each layer; b starts at 0. In linear attention the gates f multiply the kernel.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from poslab.config.schema import Options
from poslab.model.layered import LayeredScheme, wide_linear
from poslab.model.positions import Geometry, LearnedOptions, Scheme


class _FoXLayer(Scheme):
    """The gates of one layer."""

    def __init__(self, options: Options, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        self.weight = nn.Parameter(torch.empty(geometry.heads, geometry.width))
        self.offset = nn.Parameter(torch.zeros(geometry.heads))

    def log_gates(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T"]:
        # A gate that bfloat16 rounds to 1 would never forget.
        return logsigmoid(wide_linear(x, self.weight, self.offset)).mT


class FoX(LayeredScheme):
    options_class = LearnedOptions
    layer_class = _FoXLayer
    parts = "gates"
