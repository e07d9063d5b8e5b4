"""Softmax attention with the package flash-attn (Dao 2023, arXiv 2307.08691), if it is installed.

Shapes: W width of queries and keys after the rotation.
"""

from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from poslab.model.positions import Scheme


@cache
def installed() -> bool:
    """Return whether the package is installed and works with this PyTorch."""
    try:
        from flash_attn import flash_attn_func  # noqa: F401
    except (ImportError, OSError):  # not installed, or built for another PyTorch
        return False
    return True


def fixed_slopes(scheme: Scheme, bias: Tensor) -> Tensor | None:
    """Return the slopes m_h (H) of a fixed bias -m_h t at consecutive positions; otherwise None."""
    tail = scheme.tail()
    if tail is None or tail.horizon or bias.requires_grad or not scheme.geometry.consecutive:
        return None
    return -tail.log_decay


def attend(
    q: Float[Tensor, "B H T W"],
    k: Float[Tensor, "B H T W"],
    v: Float[Tensor, "B H T W"],
    slopes: Float[Tensor, "H"] | None,
    window: int | None,
    scale: float,
) -> Float[Tensor, "B H T W"]:
    """Return causal attention in half precision, optionally with a bias of -slopes t and within a window."""
    from flash_attn import flash_attn_func

    if slopes is not None:
        slopes = slopes.to(q.device, torch.float32)
    swapped = (tensor.transpose(1, 2) for tensor in (q, k, v))  # (B, H, T, W) here, (B, T, H, W) there
    before = -1 if window is None else window - 1
    mixed: Tensor = flash_attn_func(
        *swapped, softmax_scale=scale, causal=True, window_size=(before, 0), alibi_slopes=slopes
    )
    return mixed.transpose(1, 2)
