"""Retention (Sun et al. 2023, RetNet, arXiv 2307.08621): a state per head, with a fixed decay.

    S_t = g_h S_{t-1} + k_t v_t^T,    g_h = 1 - 2^(-5 - h)    (equations 6 and 8)

for the heads h = 0, 1, ... The paper also turns queries and keys: pos=rope does that, pos=none leaves it
out. For its group norm there is RMSNorm of each head, as in the authors' code, and keys are half as wide.
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
