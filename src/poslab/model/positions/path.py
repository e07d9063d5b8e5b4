"""PaTH attention (Yang et al. 2025, arXiv 2505.16381): reflections by content between a query and a key.

    logit_ij = q_i^T H_i H_(i-1) ... H_(j+1) k_j / sqrt(K),   H_t = I - beta_t w_t w_t^T

for each head, w = silu(conv(B A x)) / |silu(conv(B A x))| and beta = 2 sigmoid(w_h x + b_h). A (rank x D), B,
and the convolution of each channel over three tokens are learned for each layer, as in the authors' code
(fla/layers/path_attn.py in flash-linear-attention); b starts at 0. The forget gate of PaTH-FoX is left out.

With u = sqrt(beta) w, one triangular system gives the products of all H (section 3.2, the UT transform):

    logits = Q K^T - tril(Q U^T) (I + strictly lower(U U^T))^-1 strictly lower(U K^T)
"""

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import conv1d, linear, normalize, pad, silu

from poslab.model.layered import LayeredScheme
from poslab.model.positions import Geometry, LearnedOptions, Scheme

WINDOW = 3  # tokens that the convolution reads, the token itself and those before it


class PaTHOptions(LearnedOptions):
    rank: int = Field(ge=1, description="rank of the low-rank projection that reads a token")


class _PaTHLayer(Scheme):
    """The reflections of one layer."""

    def __init__(self, options: PaTHOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        self.reduce = nn.Parameter(torch.empty(options.rank, geometry.width))
        self.expand = nn.Parameter(torch.empty(geometry.width, options.rank))
        self.convolution = nn.Parameter(torch.empty(geometry.width, WINDOW))
        self.weight = nn.Parameter(torch.empty(geometry.heads, geometry.width))
        self.offset = nn.Parameter(torch.zeros(geometry.heads))

    def transitions(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T K"]:
        """Return u."""
        wide = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(wide)
            read = linear(linear(x, self.reduce.to(wide)), self.expand.to(wide)).mT
            kernel = self.convolution.to(wide)[:, None]
            mixed = silu(conv1d(pad(read, (WINDOW - 1, 0)), kernel, groups=len(kernel)))
            w = normalize(mixed.reshape(len(x), self.geometry.heads, -1, x.shape[1]).mT, dim=-1)
            beta = 2 * linear(x, self.weight.to(wide), self.offset.to(wide)).sigmoid().mT
        return beta.sqrt()[..., None] * w

    def products(
        self,
        q: Float[Tensor, "B H Q K"],
        k: Float[Tensor, "B H N K"],
        transitions: Float[Tensor, "B H N K"] | None,
        first: int,
    ) -> Float[Tensor, "B H Q N"]:
        assert transitions is not None
        u = transitions.to(q.dtype)
        later = torch.linalg.solve_triangular(
            (u @ u.mT).tril(-1), (u @ k.mT).tril(-1), upper=False, unitriangular=True
        )
        return q @ k.mT - (q @ u.mT).tril(first) @ later


class PaTH(LayeredScheme):
    options_class = PaTHOptions
    layer_class = _PaTHLayer
    parts = "reflections"
