"""Stick-breaking attention (Tan et al. 2024, arXiv 2410.17980): weights without a softmax.

    weight_ij = beta_ij prod over l in (j, i) of (1 - beta_il),   beta_ij = sigmoid(q_i k_j / sqrt(K))

for j < i: the nearest token takes its share of a stick first, and each earlier one a share of the remainder.
No token has a weight for itself, and the weights of a query sum to at most 1. The remainder is dropped, so
the first token mixes nothing. The authors' models add the remainder times a learned vector for each head,
which starts at 0; it is left out here. The scheme has no parameters.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from poslab.model.positions import Scheme


class StickBreaking(Scheme):
    normalised = False

    def score_bias(
        self, q: Float[Tensor, "B H Q K"], scores: Float[Tensor, "B H Q T"]
    ) -> Float[Tensor, "B H Q T"]:
        """Return the term that turns logits into log weights; a logit is log beta - log(1 - beta)."""
        rows, length = scores.shape[-2:]
        unseen = torch.ones(rows, length, dtype=torch.bool, device=scores.device).triu(length - rows)
        left = logsigmoid(-scores).masked_fill(unseen, 0)  # log(1 - beta), 0 for keys that are not seen
        return left.flip(-1).cumsum(dim=-1).flip(-1).masked_fill(unseen, -torch.inf)
