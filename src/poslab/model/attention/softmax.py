"""Softmax attention by its formula (Vaswani et al. 2017, equation 1): the reference for the other kinds.

It forms the (B, H, T, T) scores, in float32 or wider.
"""

from jaxtyping import Float
from torch import Tensor

from poslab.model.attention import Attention, Site


class Softmax(Attention):
    form = "exact"
    two_sided = True
    windowed = True
    takes_sinks = True

    def attend(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        v: Float[Tensor, "B H T K"],
        site: Site,
    ) -> Float[Tensor, "B H T K"]:
        self.kernel = "softmax reference"
        return self.weights(q, k, site).to(v.dtype) @ v
