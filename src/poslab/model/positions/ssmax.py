"""Scalable softmax (SSMax; Nakanishi 2025, arXiv 2501.19399): logits grow with log(i), around any scheme.

    logit_ij = s_h log(i + 1) (q_i . k_j) / sqrt(K)

for query i with n = i + 1 keys. Each head of each layer learns s_h, which starts at 0.43 (figure 1). In a
layer with a window, n is at most its length. A bias by distance of the wrapped scheme is not multiplied.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poslab.model.around import AroundOptions, Scaled, ScaledLayer
from poslab.model.positions import LearnedOptions, Scheme

START = 0.43  # the initial s


class SSMaxOptions(LearnedOptions, AroundOptions):
    pass


class _SSMaxLayer(ScaledLayer):
    def __init__(self, options: SSMaxOptions, inside: Scheme) -> None:
        super().__init__(options, inside)
        self.scale = nn.Parameter(torch.full((self.geometry.heads,), START))

    def factor(self, positions: Int[Tensor, "T"]) -> Float[Tensor, "H T"]:
        window = self.geometry.window
        before = positions if window is None else positions.clamp(max=window - 1)
        return self.scale[:, None] * torch.log1p(before.to(self.scale.dtype))


class SSMax(Scaled):
    options_class = SSMaxOptions
    layer_class = _SSMaxLayer
    options: SSMaxOptions
