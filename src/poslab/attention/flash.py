"""Softmax attention that never keeps a T x T matrix, forward or backward (Dao et al. 2022, arXiv 2205.14135).

The kernel is chosen from the device, the dtype and the bias, pinned so that PyTorch cannot fall back to
another one, and named in the run record:

    flash-attn          CUDA, float16 or bfloat16, package installed; no bias, or a fixed linear one (ALiBi)
    torch flash         no bias: CPU in any dtype, CUDA in float16 or bfloat16
    torch efficient     no bias: CUDA in float32
    strips              the rest: a strip of queries at a time, recomputed in backward (below)
"""

from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import Function
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from poslab.attention import Attention, distances
from poslab.config import Options
from poslab.positions import Scheme

WIDEST_FUSED_HEAD = 256
STRIP = 128  # queries a strip: 128 x T scores a head live at a time


class FlashOptions(Options):
    pass


class Flash(Attention):
    options_class = FlashOptions

    def attend(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        v: Float[Tensor, "B H T K"],
        scheme: Scheme,
        positions: Int[Tensor, "T"],
    ) -> Float[Tensor, "B H T K"]:
        q, k = scheme.rotate(q, positions), scheme.rotate(k, positions)
        bias = scheme.bias(torch.arange(q.shape[-2], device=q.device))
        # The fused CUDA kernels take half precision and heads of up to 256; the rest goes by strips.
        fused = q.device.type == "cpu" or q.shape[-1] <= WIDEST_FUSED_HEAD
        half = q.dtype in (torch.float16, torch.bfloat16)
        slopes = None if bias is None else _fixed_slopes(scheme, bias)
        if q.is_cuda and fused and half and (bias is None or slopes is not None) and _has_flash_attn():
            self.kernel = "flash-attn"
            return _flash_attn(q, k, v, slopes)
        if bias is None and fused and (q.device.type == "cpu" or half):
            self.kernel = f"torch flash ({q.device.type})"
            return _pinned(SDPBackend.FLASH_ATTENTION, q, k, v)
        if bias is None and fused and q.is_cuda and q.dtype == torch.float32:
            self.kernel = "torch efficient (cuda)"
            return _pinned(SDPBackend.EFFICIENT_ATTENTION, q, k, v)
        self.kernel = "strips"
        if bias is None:
            bias = q.new_zeros(q.shape[1], q.shape[-2])
        working = torch.promote_types(q.dtype, torch.float32)
        result: Tensor = Strips.apply(q, k, v, bias.to(working))  # type: ignore[no-untyped-call]
        return result


def _pinned(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(q, k, v, is_causal=True)


@cache
def _has_flash_attn() -> bool:
    try:
        from flash_attn import flash_attn_func  # noqa: F401
    except (ImportError, OSError):  # not there, or built for another PyTorch
        return False
    return True


def _fixed_slopes(scheme: Scheme, bias: Tensor) -> Tensor | None:
    """m_h where the bias is -m_h t and nothing in it is learned, else None."""
    tail = scheme.tail()
    if tail is None or tail.horizon or bias.requires_grad:
        return None
    return -tail.log_decay


def _flash_attn(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None) -> Tensor:
    from flash_attn import flash_attn_func

    if slopes is not None:
        slopes = slopes.to(q.device, torch.float32)
    # (B, H, T, K) here, (B, T, H, K) there
    swapped = (tensor.transpose(1, 2) for tensor in (q, k, v))
    result: Tensor = flash_attn_func(*swapped, causal=True, alibi_slopes=slopes).transpose(1, 2)
    return result


class Strips(Function):
    """Causal softmax attention with a bias by distance, STRIP queries at a time.

    Only q, k, v, the bias vector and the output are kept for backward, which forms each strip's weights
    again (Dao et al. 2022, algorithm 4, with blocks as wide as the keys, so that no running sum is needed).
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        v: Float[Tensor, "B H T K"],
        bias: Float[Tensor, "H T"],
    ) -> Float[Tensor, "B H T K"]:
        output = torch.empty_like(v)
        for start, stop in _strips(q.shape[-2]):
            weights = _strip_weights(q, k, bias, start, stop)
            output[..., start:stop, :] = (weights @ v[..., :stop, :].to(bias.dtype)).to(v.dtype)
        ctx.save_for_backward(q, k, v, bias, output)
        return output

    @staticmethod
    def backward(
        ctx: Any, gradient: Float[Tensor, "B H T K"]
    ) -> tuple[Tensor, Tensor, Tensor, Float[Tensor, "H T"] | None]:
        q, k, v, bias, output = ctx.saved_tensors
        working = bias.dtype
        q_gradient = torch.empty_like(q)
        k_gradient = torch.zeros_like(k, dtype=working)
        v_gradient = torch.zeros_like(v, dtype=working)
        bias_gradient = torch.zeros_like(bias) if ctx.needs_input_grad[3] else None
        # sum_j weight_ij * d weight_ij, which softmax's Jacobian subtracts, is <d output_i, output_i>
        shared = (gradient.to(working) * output.to(working)).sum(dim=-1, keepdim=True)
        for start, stop in _strips(q.shape[-2]):
            rows, keys = slice(start, stop), slice(0, stop)
            weights = _strip_weights(q, k, bias, start, stop)
            row_gradient = gradient[..., rows, :].to(working)
            v_gradient[..., keys, :] += weights.mT @ row_gradient
            score_gradient = row_gradient @ v[..., keys, :].to(working).mT
            score_gradient.sub_(shared[..., rows, :]).mul_(weights)
            if bias_gradient is not None:
                distance = distances(start, stop, q.device).clamp(min=0)  # masked scores have no gradient
                bias_gradient.index_add_(1, distance.flatten(), score_gradient.sum(dim=0).flatten(1))
            scale = q.shape[-1] ** -0.5
            q_gradient[..., rows, :] = (score_gradient @ (k[..., keys, :].to(working) * scale)).to(q.dtype)
            k_gradient[..., keys, :] += score_gradient.mT @ (q[..., rows, :].to(working) * scale)
        return q_gradient, k_gradient.to(k.dtype), v_gradient.to(v.dtype), bias_gradient


def _strips(length: int) -> list[tuple[int, int]]:
    return [(start, min(start + STRIP, length)) for start in range(0, length, STRIP)]


def _strip_weights(q: Tensor, k: Tensor, bias: Tensor, start: int, stop: int) -> Float[Tensor, "B H Q N"]:
    """What the queries [start, stop) take from the keys [0, stop)."""
    distance = distances(start, stop, q.device)
    # The bias and the mask are one (H, Q, N) matrix: the scores, a batch larger, are passed over once.
    masked_bias = bias[:, distance.clamp(min=0)].masked_fill_(distance < 0, -torch.inf)
    scores = (q[..., start:stop, :].to(bias.dtype) * q.shape[-1] ** -0.5) @ k[..., :stop, :].to(bias.dtype).mT
    weights: Tensor = scores.add_(masked_bias).softmax(dim=-1)
    return weights
