"""Retention (Sun et al. 2023, RetNet, arXiv 2307.08621): a state per head, with a fixed decay.

    S_t = g_h S_{t-1} + k_t v_t^T,    g_h = 1 - 2^(-5 - h)    (equations 6 and 8)

for the heads h = 0, 1, ... The paper also rotates queries and keys: pos=rope does so, and pos=none does not.
Its group norm is here an RMSNorm of each head, as in the authors' code. Keys are half as wide as values.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from poslab.model.recurrence import Recurrence


class Retention(Recurrence):
    convolved = False

    def log_decay(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "1 H T"]:
        heads = torch.arange(self.geometry.heads, dtype=torch.float64, device=x.device)
        return (-(2 ** (-5 - heads))).log1p().to(x.dtype)[None, :, None].expand(-1, -1, x.shape[1])
