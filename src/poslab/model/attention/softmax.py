"""Softmax attention as it is written (Vaswani et al. 2017, equation 1): the reference for every other one.

It forms the (B, H, T, T) scores, in float32 at least.
"""

from jaxtyping import Float, Int
from torch import Tensor

from poslab.config.schema import Options
from poslab.model.attention import Attention
from poslab.model.positions import Scheme


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
