"""Muon for the hidden matrices and AdamW for all other parameters, as one optimizer.

Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon) makes the momentum of a matrix nearly orthogonal.
With the scale of Liu et al. 2025 (arXiv 2502.16982) its steps are as large as AdamW's, so both use the same
learning rate and weight decay. torch.optim.Muon is not used: it rounds to bfloat16 on every device, and takes
queries, keys and values, stored here in one parameter, as one matrix; Jordan et al. take them as three.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

MOMENTUM = 0.95
STEPS = 5  # Newton-Schulz iterations
COEFFICIENTS = 3.4445, -4.7750, 2.0315  # from Jordan et al.: after 5 steps singular values are near 1
ADAMW_SIZE = 0.2  # root mean square of AdamW's steps, divided by the learning rate


class Muon(torch.optim.Optimizer):
    """An optimizer with Muon for its first group, and with `adamw` for that optimizer's groups."""

    def __init__(
        self, matrices: Mapping[Tensor, tuple[int, ...]], weight_decay: float, adamw: torch.optim.AdamW
    ) -> None:
        """Create the optimizer with the learning rate of `adamw`.

        `matrices` maps a parameter to the number of rows of each matrix stacked in it; (): it is one matrix.
        """
        self.adamw = adamw
        hidden = {"params": [*matrices], "rows": [*matrices.values()], "weight_decay": weight_decay}
        super().__init__([hidden, *adamw.param_groups], {"lr": adamw.defaults["lr"]})
        self._share()

    def _share(self) -> None:
        """Make AdamW use this optimizer's groups and state; loading a checkpoint replaces them."""
        self.adamw.param_groups = self.param_groups[1:]
        self.adamw.state = self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.adamw.step()
        hidden = self.param_groups[0]
        for parameter, rows in zip(hidden["params"], hidden["rows"], strict=True):
            if parameter.grad is not None:
                self._move(parameter, parameter.grad, list(rows) or [len(parameter)])
        return loss

    def _move(self, parameter: Tensor, gradient: Tensor, rows: list[int]) -> None:
        rate, decay = self.param_groups[0]["lr"], self.param_groups[0]["weight_decay"]
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(gradient)
        momentum = state["momentum"].lerp_(gradient, 1 - MOMENTUM)
        parameter.mul_(1 - rate * decay)
        update = gradient.lerp(momentum, MOMENTUM)  # Nesterov momentum
        for matrix, direction in zip(torch.split(parameter, rows), torch.split(update, rows), strict=True):
            scale = ADAMW_SIZE * max(matrix.shape) ** 0.5
            matrix.sub_(orthogonal(direction).to(matrix.dtype), alpha=rate * scale)


def orthogonal(matrix: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """Return the matrix with its singular values brought near 1 by Newton-Schulz iterations."""
    working = matrix.bfloat16() if matrix.is_cuda else matrix
    wide = working if len(matrix) <= matrix.shape[1] else working.mT
    wide = wide / wide.norm().clamp(min=1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        square = wide @ wide.mT
        wide = a * wide + (b * square + c * square @ square) @ wide
    return wide if len(matrix) <= matrix.shape[1] else wide.mT
