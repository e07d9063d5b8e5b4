"""Softmax attention as it is written (Vaswani et al. 2017, equation 1): the reference for every other one.

It forms the (B, H, T, T) scores, in float32 at least.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poslab.attention import Attention, distances
from poslab.config import Options
from poslab.positions import Scheme


class SoftmaxOptions(Options):
    pass


class Softmax(Attention):
    options_class = SoftmaxOptions

    def attend(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        v: Float[Tensor, "B H T K"],
        scheme: Scheme,
        positions: Int[Tensor, "T"],
    ) -> Float[Tensor, "B H T K"]:
        self.kernel = "softmax reference"
        return self.weights(q, k, scheme, positions).to(v.dtype) @ v

    def weights(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        scheme: Scheme,
        positions: Int[Tensor, "T"],
    ) -> Float[Tensor, "B H T T"]:
        """What each query (second to last axis) takes from each key; rows sum to 1."""
        return self.scores(q, k, scheme, positions).softmax(dim=-1)

    def scores(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        scheme: Scheme,
        positions: Int[Tensor, "T"],
    ) -> Float[Tensor, "B H T T"]:
        """Logits with the bias added; -inf where the key lies ahead of the query."""
        length = q.shape[-2]
        working = torch.promote_types(q.dtype, torch.float32)
        q, k = scheme.rotate(q.to(working), positions), scheme.rotate(k.to(working), positions)
        scores: Float[Tensor, "B H T T"] = q @ k.mT * q.shape[-1] ** -0.5
        distance = distances(0, length, q.device)
        bias = scheme.bias(torch.arange(length, device=q.device))
        if bias is not None:
            scores = scores + bias.to(working)[:, distance.clamp(min=0)]
        return scores.masked_fill(distance < 0, -torch.inf)
