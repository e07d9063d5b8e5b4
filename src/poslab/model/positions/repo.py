"""Context re-positioning (RePo; Li et al. 2025, arXiv 2512.14391): tokens choose their own positions.

    angle_ic = z_ih base^(-2c/K),   z_i = W_z (silu(W_g x_i) * W_c x_i)

for each pair c of each head h: RoPE at real-valued positions z, predicted from the layer's input. W_g and W_c
(D/8 x D) serve all heads of a layer. The order of the tokens plays no part. The paper continues the training
of a model with RoPE and keeps RoPE in its first layers (as `schedule` can); here z starts near 0.
"""

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import linear, silu

from poslab.model.layered import LayeredScheme
from poslab.model.positions import Geometry, LearnedOptions, Scheme


class RePoOptions(LearnedOptions):
    base: float = Field(gt=0, description="pair c of K/2 turns by base^(-2c/K) radians per unit of position")


class _RePoLayer(Scheme):
    """The positions of one layer."""

    options: RePoOptions
    two_sided = True

    def __init__(self, options: RePoOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        self.refuse_odd_heads()
        hidden = max(1, geometry.width // 8)
        self.gate = nn.Parameter(torch.empty(hidden, geometry.width))
        self.content = nn.Parameter(torch.empty(hidden, geometry.width))
        self.assign = nn.Parameter(torch.empty(geometry.heads, hidden))

    def angles(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B H T K/2"]:
        wide = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(wide)
            hidden = silu(linear(x, self.gate.to(wide))) * linear(x, self.content.to(wide))
            chosen = linear(hidden, self.assign.to(wide)).mT
        pairs = torch.arange(0, self.geometry.head_width, 2, device=x.device, dtype=torch.float64)
        return chosen.double()[..., None] * self.options.base ** (-pairs / self.geometry.head_width)


class RePo(LayeredScheme):
    options_class = RePoOptions
    layer_class = _RePoLayer
    parts = "chosen"
    two_sided = True
