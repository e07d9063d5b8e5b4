"""Cross entropy without the logits of all tokens at once, for large vocabularies.

N tokens over a vocabulary of V have N V logits, and their gradient is as large. Here both are computed for a
block of tokens at a time, the gradient together with the loss (as in Hsu et al. 2024, arXiv 2410.10989,
section 3). The results equal those of the plain loss except for rounding.

Shapes: N tokens, D width, V vocabulary.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy

from poslab.model.kernels.matmul import linear
from poslab.objectives import UNSCORED

LOGITS = 2**23  # in a block: 32 MiB in float32, the fastest of four sizes on a CPU


def losses(x: Float[Tensor, "N D"], weight: Float[Tensor, "V D"], targets: Int[Tensor, "N"]) -> Tensor:
    """Return the negative log-likelihood of each target under the logits x W^T, in nats; 0 where UNSCORED."""
    rows = max(1, LOGITS // len(weight))
    blocks = []
    for start in range(0, len(x), rows):
        logits = _wide(linear(x[start : start + rows], weight))
        block_targets = targets[start : start + rows]
        blocks.append(cross_entropy(logits, block_targets, reduction="none", ignore_index=UNSCORED))
    return torch.cat(blocks)


def mean_loss(x: Float[Tensor, "N D"], weight: Float[Tensor, "V D"], targets: Int[Tensor, "N"]) -> Tensor:
    """Return the mean of the `losses` of the scored targets."""
    if len(targets) * len(weight) <= LOGITS:
        return cross_entropy(_wide(linear(x, weight)), targets, ignore_index=UNSCORED)
    return _MeanLoss.apply(x, weight, targets)  # type: ignore[no-untyped-call]


def _wide(logits: Tensor) -> Tensor:
    """Return logits in float32, or unchanged if they are in float64."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


class _MeanLoss(Function):
    """The mean loss. Its gradients are computed in the forward pass, so that no logits are computed twice."""

    @staticmethod
    def forward(
        ctx: Any, x: Float[Tensor, "N D"], weight: Float[Tensor, "V D"], targets: Int[Tensor, "N"]
    ) -> Float[Tensor, ""]:
        wide, device = torch.promote_types(x.dtype, torch.float32), x.device.type
        scored = targets != UNSCORED
        share = scored.to(wide) / scored.sum()  # each token's share of the mean
        d_x, d_weight = torch.empty_like(x), torch.zeros_like(weight)
        if torch.is_autocast_enabled(device):  # cast once, not for each block
            x, weight = (tensor.to(torch.get_autocast_dtype(device)) for tensor in (x, weight))
        total = share.new_zeros(())
        rows = max(1, LOGITS // len(weight))
        for start in range(0, len(x), rows):
            part = slice(start, start + rows)
            row_share, places = share[part, None], targets[part].clamp(min=0)[:, None]
            logits = linear(x[part], weight).to(wide)
            softmax = logits.softmax(dim=-1)
            largest, index = logits.max(dim=-1, keepdim=True)
            normaliser = largest - softmax.gather(1, index).log()  # the largest softmax value is not tiny
            total += ((normaliser - logits.gather(1, places)) * row_share).sum()
            gradient = softmax.scatter_add_(1, places, -torch.ones_like(places, dtype=wide)).to(x.dtype)
            d_x[part] = (gradient @ weight) * row_share
            scaled = (x[part] * row_share).to(x.dtype)
            if x.dtype == wide:
                d_weight.addmm_(gradient.t(), scaled)
            else:
                d_weight += gradient.t() @ scaled
        ctx.save_for_backward(d_x, d_weight)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Float[Tensor, ""]) -> tuple[Tensor, Tensor, None]:
        d_x, d_weight = ctx.saved_tensors
        return d_x.mul_(scale), d_weight.mul_(scale), None  # in place: a second backward pass is refused
