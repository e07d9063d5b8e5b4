"""Wall attention (Tilde Research 2026; fla/ops/wall_attn in flash-linear-attention): gates by channel.

    logit_ij = sum_c q_ic k_jc exp(G_ic - G_jc) / sqrt(K),   G_t = sum over l <= t of log g_l,

with g_l = sigmoid(W_h x_l + b_h): K gates for each head h of each layer. FoX has one, and adds its logarithm
to the logit. b starts at `offset`; the authors' value of 8 gives gates of 0.9997.
"""

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from poslab.model.layered import LayeredScheme, wide_linear
from poslab.model.positions import Geometry, LearnedOptions, Scheme

BLOCK = 16  # queries that share an anchor; affects only rounding, speed and memory


class WallOptions(LearnedOptions):
    offset: float = Field(description="gates start near the sigmoid of this")


class _WallLayer(Scheme):
    """The gates of one layer."""

    products_in_strips = True
    decays_channels = True

    def __init__(self, options: WallOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        self.weight = nn.Parameter(torch.empty(geometry.width, geometry.width))  # head after head
        self.offset = nn.Parameter(torch.full((geometry.width,), options.offset))

    def transitions(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T K"]:
        """Return G in float64, since differences of long sums are small."""
        gates = logsigmoid(wide_linear(x, self.weight, self.offset))
        of_heads = gates.reshape(*x.shape[:2], self.geometry.heads, -1).transpose(1, 2)
        return of_heads.double().cumsum(dim=-2)

    def products(
        self,
        q: Float[Tensor, "B H Q K"],
        k: Float[Tensor, "B H N K"],
        transitions: Float[Tensor, "B H N K"] | None,
        first: int,
    ) -> Float[Tensor, "B H Q N"]:
        assert transitions is not None
        blocks = [
            _block(first + row, q[..., row : row + BLOCK, :], k, transitions)
            for row in range(0, q.shape[-2], BLOCK)
        ]
        return torch.cat(blocks, dim=-2)


def _block(
    start: int, q: Float[Tensor, "B H Q K"], k: Float[Tensor, "B H N K"], sums: Float[Tensor, "B H N K"]
) -> Float[Tensor, "B H Q N"]:
    """Return the products of the queries from number `start` on.

    Every exponent is at most 0. For keys before the block it is a sum of two, split at the block's first
    token, so that no Q x N x K tensor is formed; for keys in the block it is a difference for each pair.
    """
    stop = start + q.shape[-2]
    inside, anchor = sums[..., start:stop, :], sums[..., start : start + 1, :]
    from_anchor = (inside - anchor).to(q.dtype).exp()
    to_anchor = (anchor - sums[..., :start, :]).to(q.dtype).exp()
    before = (q * from_anchor) @ (k[..., :start, :] * to_anchor).mT
    between = (inside[..., :, None, :] - inside[..., None, :, :]).clamp(max=0).to(q.dtype).exp()
    within = (between * k[..., None, start:stop, :]) @ q[..., None]
    ahead = q.new_zeros(*q.shape[:-1], k.shape[-2] - stop)
    return torch.cat([before, within.squeeze(-1), ahead], dim=-1)


class Wall(LayeredScheme):
    options_class = WallOptions
    layer_class = _WallLayer
    parts = "gates"
