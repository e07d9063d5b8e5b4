"""Contextual positions (CoPE; Golovneva et al. 2024, arXiv 2405.18719, equations 3 to 5): each query counts.

    logit_ij += q_i . e(p_ij) / sqrt(K),   p_ij = sum over l in [j, i] of sigmoid(logit_il)

A key's position is the number of tokens from the key to the query, each counted by how well it fits the
query. e is a vector for each whole number below `positions`, learned for each layer and interpolated between
whole numbers; larger ones use the last. The division by sqrt(K) is that of the authors' code, where the
vectors start at 0; here they start like all matrices.
"""

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from poslab.model.layered import LayeredScheme
from poslab.model.positions import Geometry, LearnedOptions, Scheme


class CoPEOptions(LearnedOptions):
    positions: int = Field(ge=2, description="number of whole positions, from 0 on, that have a vector")


class _CoPELayer(Scheme):
    """The vectors of one layer."""

    def __init__(self, options: CoPEOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        self.vectors = nn.Parameter(torch.empty(options.positions, geometry.head_width))

    def score_bias(
        self, q: Float[Tensor, "B H Q K"], scores: Float[Tensor, "B H Q T"]
    ) -> Float[Tensor, "B H Q T"]:
        counted = scores.sigmoid().flip(-1).cumsum(dim=-1).flip(-1).clamp(max=len(self.vectors) - 1)
        whole = counted.detach().floor()
        products = q @ self.vectors.to(q.dtype).mT * q.shape[-1] ** -0.5
        below = products.gather(-1, whole.long())
        above = products.gather(-1, counted.detach().ceil().long())
        return below + (counted - whole) * (above - below)


class CoPE(LayeredScheme):
    options_class = CoPEOptions
    layer_class = _CoPELayer
    parts = "counts"
