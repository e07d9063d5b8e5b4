"""A linear probe of a token's position, fitted to the hidden state after each layer of a trained model."""

from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poslab.evaluation.losses import TOKENS_A_BATCH, evaluating
from poslab.model.gpt import GPT

WINDOWS = 1_250  # windows in all, so that 1,000 fit the probe, if the text has so many
SHARE = 5  # one fifth of the windows tests the probe, and one fifth of the others chooses the penalty
PENALTIES = [10.0**power for power in range(-6, 1)]  # relative to the variance of a feature


def read_positions(gpt: GPT, windows: Int[np.ndarray, "N T+1"]) -> list[dict[str, Any]]:
    """Return rows of position_probe.csv: ridge regression of the position in a window, by layer.

    Features are standardised, and the constant is not penalised (Hastie, Tibshirani and Friedman, The
    Elements of Statistical Learning, 2009, section 3.4.1). The penalty is the one with the lowest error on
    held-out windows, and the errors are those on the last windows. The control is the same probe of positions
    shuffled in each window. Fewer than three windows or a layer with states that are not finite give no row.
    """
    length, read = windows.shape[1] - 1, max(1, len(windows) // SHARE)
    fitted = len(windows) - read
    chosen = max(1, fitted // SHARE)
    if fitted <= chosen:
        return []
    parts = [_sums(gpt, part) for part in np.split(windows, [fitted - chosen, fitted])]
    rows = []
    for layer, (fit, choose, held_out) in enumerate(zip(*parts, strict=True)):
        if not all(sums.isfinite().all() for sums in (fit, choose, held_out)):
            continue
        position, shuffled = range(len(fit) - 2, len(fit))
        penalty = min(PENALTIES, key=lambda penalty: _error(fit, choose, position, penalty))
        rows.append(
            {
                "layer": layer,
                "tokens": read * length,
                "squared_error": _error(fit + choose, held_out, position, penalty),
                "squared_deviation": read * length * (length**2 - 1) / 12,
                "fitted_windows": fitted,
                "penalty": penalty,
                "shuffled_error": _error(fit + choose, held_out, shuffled, penalty),
            }
        )
    return rows


def _sums(gpt: GPT, windows: Int[np.ndarray, "N T+1"]) -> Float[Tensor, "layers S S"]:
    """Return sums of products by layer, of a state's features, a constant, the position and a shuffled one.

    They are all that ridge regression needs, and take the memory of one batch of windows.
    """
    size = gpt.geometry.width + 3
    sums = torch.zeros(gpt.geometry.layers, size, size, dtype=torch.float64)
    random = torch.Generator().manual_seed(0)

    def add(layer: int, block: nn.Module, inputs: Any, output: Float[Tensor, "B T D"]) -> None:
        shuffled = torch.rand(output.shape[:2], generator=random).argsort(dim=1)
        position = torch.arange(output.shape[1]).expand_as(shuffled)
        targets = torch.stack([torch.ones_like(position), position, shuffled], dim=-1)
        x = torch.cat([output.double(), targets.to(output.device)], dim=-1).flatten(0, 1)
        sums[layer] += (x.T @ x).cpu()

    hooks = [block.register_forward_hook(partial(add, layer)) for layer, block in enumerate(gpt.blocks)]
    device = next(gpt.parameters()).device
    size = max(1, TOKENS_A_BATCH[device.type] // (windows.shape[1] - 1))
    with evaluating(gpt, hooks), torch.inference_mode():
        for start in range(0, len(windows), size):
            rows = torch.from_numpy(windows[start : start + size]).to(device)
            gpt(rows[:, :-1], targets=rows[:, 1:], reduction="none")  # takes less memory than logits
    return sums


def _error(fit: Float[Tensor, "S S"], read: Float[Tensor, "S S"], target: int, penalty: float) -> float:
    """Return the squared error, summed over tokens, on the windows of `read` of a probe fitted to `fit`."""
    constant = len(fit) - 3
    means = fit[constant] / fit[constant, constant]
    spread = fit - fit[constant, constant] * torch.outer(means, means)
    scale = spread.diagonal()[:constant].clamp(min=1e-12).sqrt()
    squares = spread[:constant, :constant] / torch.outer(scale, scale) + penalty * torch.eye(constant)
    weights = torch.linalg.solve(squares, spread[:constant, target] / scale) / scale
    # The probe's error as weights of the summed quantities.
    miss = torch.zeros(len(fit), dtype=torch.float64)
    miss[:constant], miss[target] = weights, -1.0
    miss[constant] = means[target] - weights @ means[:constant]
    return float(miss @ read @ miss)
