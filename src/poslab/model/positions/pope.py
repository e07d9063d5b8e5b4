"""Polar positions (PoPE; Gopalakrishnan et al. 2025, arXiv 2509.10534): content separate from position.

Each component of a query or a key is a magnitude with its own phase, so content and position do not mix:

    score_ij = sum_c softplus(q_ic) softplus(k_jc) cos((i - j) theta_c + delta_c),  theta_c = base^(-c/K)

delta_c is learned for each head and starts at 0; the paper confines it to [-2 pi, 0], which makes no
difference to a cosine. Each component becomes two, (magnitude cos, magnitude sin), so that a plain product
gives the score. Under linear attention the feature map, also positive, replaces softplus.
"""

import torch
from jaxtyping import Complex, Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import softplus

from poslab.model.positions import Geometry, LearnedOptions, Scheme
from poslab.model.positions.rope import turns_at
from poslab.model.rescaling import Rescaling


class PoPEOptions(LearnedOptions):
    base: float = Field(gt=1, description="component c of a head's K turns by base^(-c/K) radians per token")


class PoPE(Scheme):
    options_class = PoPEOptions
    two_sided = True
    options: PoPEOptions
    rescaling: Rescaling | None = None

    def __init__(self, options: PoPEOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        # A vector, head after head: vectors keep their initial values and have no weight decay.
        self.delta = nn.Parameter(torch.zeros(geometry.width))

    @property
    def length_dependent(self) -> bool:
        return self.rescaling is not None and self.rescaling.length_dependent

    def logit_features(self, x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        return softplus(x) * (1.0 if self.rescaling is None else self.rescaling.query_key_scale)

    def rotate_queries(
        self, q: Float[Tensor, "B H T K"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T 2K"]:
        return _polar(q, self._phases(positions)[None])

    def rotate_keys(
        self, k: Float[Tensor, "B H T K"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T 2K"]:
        delta = self.delta.double().reshape(self.geometry.heads, 1, -1)
        return _polar(k, self._phases(positions)[None] - delta)

    def can_rotate(self, width: int) -> bool:
        return width == self.geometry.head_width  # delta has one value for each component

    def rescale(self, rescaling: Rescaling | None) -> bool:
        self.rescaling = rescaling
        return True

    def relative_rotation(self, distance: Int[Tensor, "N"]) -> Complex[Tensor, "C N"]:
        """Return the factor without delta, which does not depend on the distance."""
        return turns_at(self._frequencies(torch.arange(self.geometry.context_length)), distance)

    def _phases(self, positions: Int[Tensor, "T"]) -> Float[Tensor, "T K"]:
        return positions.double()[:, None] * self._frequencies(positions)

    def _frequencies(self, positions: Int[Tensor, "T"]) -> Float[Tensor, "K"]:
        width = self.geometry.head_width
        number = torch.arange(width, device=positions.device, dtype=torch.float64)
        theta: Tensor = self.options.base ** (-number / width)
        if self.rescaling is not None:
            theta = self.rescaling.frequencies(theta, positions.amax() + 1, self.geometry.context_length)
        return theta


def _polar(magnitude: Float[Tensor, "B H T K"], phase: Float[Tensor, "H T K"]) -> Float[Tensor, "B H T 2K"]:
    working = torch.promote_types(magnitude.dtype, torch.float32)
    cos, sin = phase.cos().to(working), phase.sin().to(working)
    wide = magnitude.to(working)
    return torch.cat([wide * cos, wide * sin], dim=-1).to(magnitude.dtype)
