"""Causal linear attention (Katharopoulos et al. 2020, arXiv 2006.16236), phi(x) = elu(x) + 1.

    out_i = sum_{j<=i} w(i-j) <phi(q_i), phi(k_j)> v_j / sum_{j<=i} w(i-j) <phi(q_i), phi(k_j)>

with w(t) = exp(bias(t)), since exp(bias) multiplies the kernel where softmax adds the bias to its logarithm.
A rotation turns phi(q) and phi(k), in the numerator alone (RoFormer, equation 19): the rotated product can
be negative, and as a denominator it could vanish. This is the masked quadratic form, in float32 at least.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import elu

from poslab.attention import Attention, distances
from poslab.config import Options
from poslab.positions import Scheme


class LinearOptions(Options):
    pass


class Linear(Attention):
    options_class = LinearOptions

    def attend(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        v: Float[Tensor, "B H T K"],
        scheme: Scheme,
        positions: Int[Tensor, "T"],
    ) -> Float[Tensor, "B H T K"]:
        self.kernel = "linear, masked quadratic"
        length = q.shape[-2]
        working = torch.promote_types(q.dtype, torch.float32)
        q, k = elu(q.to(working)) + 1, elu(k.to(working)) + 1
        distance = distances(0, length, q.device)
        weight = (distance >= 0).to(working)
        bias = scheme.bias(torch.arange(length, device=q.device))
        if bias is not None:
            # A constant a head cancels in the quotient; taking the largest away keeps every factor <= 1.
            bias = (bias - bias.amax(dim=-1, keepdim=True).detach()).to(working)
            weight = weight * bias.exp()[:, distance.clamp(min=0)]
        denominator = ((q @ k.mT) * weight).sum(dim=-1, keepdim=True)
        numerator = (scheme.rotate(q, positions) @ scheme.rotate(k, positions).mT) * weight
        return ((numerator @ v.to(working)) / denominator).to(v.dtype)
