"""Canon layers: each token gains a weighted sum of itself and the three before it, channel by channel.

Allen-Zhu 2025, arXiv 2512.17351; here in the form that its authors recommend for Transformers: a residual,
no activation, no bias.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

CANON_KERNEL = 4  # tokens that a Canon layer sums: the token itself and the three before it


class Canon(nn.Module):
    """x plus a causal depthwise convolution of x."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        # The layout of nn.Conv1d: the last column is the token's own weight.
        self.weight = nn.Parameter(torch.zeros(channels, 1, CANON_KERNEL))

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        length = x.shape[1]
        padded = pad(x, (0, 0, CANON_KERNEL - 1, 0))
        mixed = x
        for column in range(CANON_KERNEL):
            mixed = mixed + padded[:, column : column + length] * self.weight[:, 0, column]
        return mixed.to(x.dtype)  # under autocast the sum is in float32

    @torch.no_grad()
    def draw(self, stream: torch.Generator) -> None:
        """Draw from U(-1/2, 1/2), PyTorch's default for a convolution, which the authors' code uses."""
        bound = CANON_KERNEL**-0.5
        self.weight.copy_(torch.empty(self.weight.shape).uniform_(-bound, bound, generator=stream))
