"""The bias of Inkling (Thinking Machines 2026; InklingRelativeLogits in transformers), by query and distance.

    bias_h(i, t) = (W_r x_i)_h . P[:, t] for the key t < extent tokens back, 0 from extent on

for each head h. P holds `rank` profiles by distance, which each token mixes by its content. W_r and P are
learned for each layer. Inkling has no other positions, rank 16, and an extent of 1,024 tokens, or of the
window in layers with one. Here the extent is a share of the training length L, since columns of P beyond L
would keep their random initial values.
"""

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from poslab.model.layered import LayeredScheme, wide_linear
from poslab.model.positions import ContentBias, Geometry, LearnedOptions, Scheme


class InklingOptions(LearnedOptions):
    rank: int = Field(ge=1, description="profiles by distance that each token mixes")
    extent: float = Field(gt=0, le=1, description="distance, as a share of L, from which a key has no bias")


class _InklingLayer(Scheme):
    """The bias of one layer."""

    def __init__(self, options: InklingOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        extent = max(1, round(options.extent * geometry.context_length))
        if geometry.window is not None:
            extent = min(extent, geometry.window)
        self.read = nn.Parameter(torch.empty(geometry.heads * options.rank, geometry.width))
        self.profiles = nn.Parameter(torch.empty(options.rank, extent))

    def content_bias(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> ContentBias:
        read = wide_linear(x, self.read)
        of_heads = read.reshape(*x.shape[:2], self.geometry.heads, -1).transpose(1, 2)
        return ContentBias(of_heads, self.profiles.to(read.dtype))


class Inkling(LayeredScheme):
    options_class = InklingOptions
    layer_class = _InklingLayer
    parts = "biases"
