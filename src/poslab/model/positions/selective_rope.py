"""Selective RoPE (Movahedi et al. 2026, arXiv 2511.17388): each token sets how far pairs turn.

    angle_ic = base^(-2c/K) sum over l <= i of g_l phi_lc,   phi = silu(conv(B A u))

for each pair c of each head, where u is x with the K components of each head normalised to length 1. A
(rank x D) and B are learned for each layer, as is conv, a causal convolution over four tokens for each pair.
The authors found that silu and the gate g = sigmoid(w_h u + b_h) of each head help language models; `gated`
and `activation` can leave them out. Formula and initial values are those of the authors' code
(modules/rotary.py, low rank). Silu keeps steps above -0.28, so a sum mostly grows like a clock; with
activation=none it falls as easily.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import conv1d, linear, normalize, pad, silu

from poslab.model.layered import LayeredScheme
from poslab.model.positions import Geometry, LearnedOptions, Scheme

WINDOW = 4  # tokens that the convolution reads, the token itself and those before it


class SelectiveRoPEOptions(LearnedOptions):
    base: float = Field(gt=0, description="the angles of pair c of K/2 are multiplied by base^(-2c/K)")
    rank: int = Field(ge=1, description="rank of the low-rank projection that reads a token")
    activation: Literal["silu", "none"] = Field(description="activation after the convolution")
    gated: bool = Field(description="whether each head multiplies a token's angles by a sigmoid gate")


class _SelectiveRoPELayer(Scheme):
    """The angles of one layer."""

    options: SelectiveRoPEOptions

    def __init__(self, options: SelectiveRoPEOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        self.refuse_odd_heads()
        angles = geometry.width // 2  # H K/2, head after head
        self.reduce = nn.Parameter(torch.empty(options.rank, geometry.width))
        self.expand = nn.Parameter(torch.empty(angles, options.rank))
        self.convolution = nn.Parameter(torch.empty(angles, WINDOW))
        if options.gated:
            self.gate = nn.Parameter(torch.empty(geometry.heads, geometry.width))
            self.offset = nn.Parameter(torch.zeros(geometry.heads))

    def angles(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B H T K/2"]:
        wide = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            of_heads = x.to(wide).reshape(*x.shape[:2], self.geometry.heads, -1)
            unit = normalize(of_heads, dim=-1).flatten(-2)
            read = linear(linear(unit, self.reduce.to(wide)), self.expand.to(wide)).mT
            kernel = self.convolution.to(wide)[:, None]
            steps = conv1d(pad(read, (WINDOW - 1, 0)), kernel, groups=len(kernel))
            if self.options.activation == "silu":
                steps = silu(steps)
            heads = self.geometry.heads, self.geometry.head_width // 2
            steps = steps.reshape(len(x), *heads, -1).mT  # (B, H, T, K/2)
            if self.options.gated:
                gate = linear(unit, self.gate.to(wide), self.offset.to(wide)).sigmoid()
                steps = steps * gate.mT[..., None]
        pairs = torch.arange(0, self.geometry.head_width, 2, device=x.device, dtype=torch.float64)
        temperatures = self.options.base ** (-pairs / self.geometry.head_width)
        return steps.double().cumsum(dim=2) * temperatures


class SelectiveRoPE(LayeredScheme):
    options_class = SelectiveRoPEOptions
    layer_class = _SelectiveRoPELayer
    parts = "turns"
