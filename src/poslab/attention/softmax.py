"""Softmax attention as it is written (Vaswani et al. 2017, equation 1): the reference for every other one.

It forms the (B, H, T, T) scores, in float32 at least.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poslab.attention import Attention, added_to_logits
from poslab.config import Options
from poslab.positions import Scheme


class SoftmaxOptions(Options):
    pass


class Softmax(Attention):
    options_class = SoftmaxOptions
    form = "exact"

    def attend(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        v: Float[Tensor, "B H T K"],
        scheme: Scheme,
        positions: Int[Tensor, "T"],
        log_gates: Float[Tensor, "B H T"] | None = None,
    ) -> Float[Tensor, "B H T K"]:
        self.kernel = "softmax reference"
        return self.weights(q, k, scheme, positions, log_gates).to(v.dtype) @ v

    def weights(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        scheme: Scheme,
        positions: Int[Tensor, "T"],
        log_gates: Float[Tensor, "B H T"] | None = None,
    ) -> Float[Tensor, "B H T T"]:
        """What each query (second to last axis) takes from each key; rows sum to 1."""
        return self.scores(q, k, scheme, positions, log_gates).softmax(dim=-1)

    def scores(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        scheme: Scheme,
        positions: Int[Tensor, "T"],
        log_gates: Float[Tensor, "B H T"] | None = None,
    ) -> Float[Tensor, "B H T T"]:
        """Logits with all that is added to them; -inf where the key lies ahead of the query."""
        scale = q.shape[-1] ** -0.5
        working = torch.promote_types(q.dtype, torch.float32)
        q = scheme.rotate_queries(scheme.logit_features(q.to(working)), positions)
        k = scheme.rotate_keys(scheme.logit_features(k.to(working)), positions)
        scores: Float[Tensor, "B H T T"] = q @ k.mT * scale
        return scores + added_to_logits(scheme, positions, log_gates, working)
