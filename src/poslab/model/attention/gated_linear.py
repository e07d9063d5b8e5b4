"""Gated linear attention with a scalar gate per head, Mamba-2's form (Dao and Gu 2024, arXiv 2405.21060).

    S_t = a_t S_{t-1} + k_t v_t^T,    a_t = exp(-A_h softplus(W_a x_t + d)_h)

There is no denominator. In Mamba-2 the step (the softplus) also multiplies the values. That is left out, as
in table 1 of Yang et al. (arXiv 2412.06464) and `simple_gla` of flash-linear-attention. W_a adds D parameters
per head to those of attention. A and d are drawn as in Mamba-2 and train without weight decay.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear, softplus

from poslab.config.schema import Options
from poslab.model.kernels.matmul import Linear
from poslab.model.positions import Geometry, Scheme
from poslab.model.recurrence import Recurrence

RATES = 1.0, 16.0  # A is drawn between them, uniformly
STEPS = 0.001, 0.1  # softplus(d) is drawn between them, log-uniformly


class GatedLinear(Recurrence):
    def __init__(self, options: Options, geometry: Geometry, scheme: Scheme) -> None:
        super().__init__(options, geometry, scheme)
        self.decay = Linear(geometry.width, geometry.heads, bias=False)
        self.log_rate = nn.Parameter(torch.zeros(geometry.heads))
        self.offset = nn.Parameter(torch.zeros(geometry.heads))

    @torch.no_grad()
    def draw(self, stream: torch.Generator) -> None:
        heads = self.geometry.heads
        self.log_rate.copy_(torch.empty(heads).uniform_(*RATES, generator=stream).log())
        steps = torch.empty(heads).uniform_(*map(math.log, STEPS), generator=stream).exp()
        self.offset.copy_(steps.expm1().log())  # the softplus of the offset is the step

    def log_decay(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T"]:
        weight, offset, log_rate = (
            part.to(x.dtype) for part in (self.decay.weight, self.offset, self.log_rate)
        )
        return -(log_rate.exp() * softplus(linear(x, weight, offset))).mT
