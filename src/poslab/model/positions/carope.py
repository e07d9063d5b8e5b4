"""Context-aware RoPE (CARoPE; Veisi et al. 2025, arXiv 2507.23083, section 2): tokens choose the frequencies.

    angle_ic = sum over l <= i of f_l^c,   f_l = 1 / (softplus(w_h x_l) + 1)

for each pair c = 0, 1, ... of each head h. RoPE's frequencies base^(-2c/K) are the powers of one number, and
here each token chooses that number. The paper reads token embeddings; here x is the layer's input, with
weights for each layer. f starts near 1 / (1 + ln 2) = 0.59, close to the 0.56 of RoPE with base 10,000 in
heads 32 wide; the paper starts from RoPE and does not say how.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import softplus

from poslab.config.schema import Options
from poslab.model.layered import LayeredScheme, wide_linear
from poslab.model.positions import Geometry, LearnedOptions, Scheme


class _CARoPELayer(Scheme):
    """The angles of one layer."""

    two_sided = True

    def __init__(self, options: Options, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        self.refuse_odd_heads()
        self.weight = nn.Parameter(torch.empty(geometry.heads, geometry.width))

    def angles(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B H T K/2"]:
        log_frequency = -softplus(wide_linear(x, self.weight)).log1p().mT
        pairs = torch.arange(self.geometry.head_width // 2, device=x.device)
        return (log_frequency.double()[..., None] * pairs).exp().cumsum(dim=2)


class CARoPE(LayeredScheme):
    options_class = LearnedOptions
    layer_class = _CARoPELayer
    parts = "turns"
    two_sided = True
