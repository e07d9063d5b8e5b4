"""Softmax attention without a T x T matrix, forward or backward (Dao et al. 2022, arXiv 2205.14135).

The kernel is chosen from the device, the dtype and the bias, pinned so that PyTorch cannot fall back to
another one, and named in the run record:

    flash-attn          CUDA, float16 or bfloat16, package installed; no bias, or a fixed linear one (ALiBi)
    torch flash         no bias: CPU in any dtype, CUDA in float16 or bfloat16
    torch efficient     no bias: CUDA in float32, heads whose width is a multiple of 4
    flex attention      CUDA: the rest, where heads are 16 to 256 wide (poslab.model.flex)
    strips              the rest: a strip of queries at a time, recomputed in backward (below)
"""

from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import Function
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from poslab.model import flex
from poslab.model.attention import Attention, Site, cumulative_log_gates, distances
from poslab.model.positions import Scheme

WIDEST_FUSED_HEAD = 256
STRIP = 128  # queries a strip: 128 x T scores a head live at a time


class Flash(Attention):
    form = "fused"

    def attend(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        v: Float[Tensor, "B H T K"],
        site: Site,
    ) -> Float[Tensor, "B H T K"]:
        scheme, positions, log_gates = site.scheme, site.positions, site.log_gates
        scale = q.shape[-1] ** -0.5
        q = scheme.rotate_queries(scheme.logit_features(q), positions)
        k = scheme.rotate_keys(scheme.logit_features(k), positions)
        working = torch.promote_types(q.dtype, torch.float32)
        if not scheme.by_distance:
            if flex.takes(q, v):
                self.kernel = "flex attention (cuda)"
                return flex.attend(q, k, v, site, scale)
            self.kernel = "strips, checkpointed"
            return _pairwise_strips(q, k, v, site, scale)
        # Positions that are drawn (pos.scheme=randomised) lie anywhere below the scheme's context length.
        reach = q.shape[-2] if scheme.geometry.consecutive else scheme.geometry.context_length
        bias = scheme.bias(torch.arange(reach, device=q.device))
        # The fused CUDA kernels take half precision and heads of up to 256; the rest goes by strips.
        fused = q.device.type == "cpu" or q.shape[-1] <= WIDEST_FUSED_HEAD
        half = q.dtype in (torch.float16, torch.bfloat16)
        slopes = None if bias is None else _fixed_slopes(scheme, bias)
        plain = bias is None and log_gates is None
        sloped = slopes is not None and log_gates is None
        if q.is_cuda and fused and half and (plain or sloped) and _has_flash_attn():
            self.kernel = "flash-attn"
            return _flash_attn(q, k, v, slopes, scale)
        if plain and fused and (q.device.type == "cpu" or half):
            self.kernel = f"torch flash ({q.device.type})"
            return _pinned(SDPBackend.FLASH_ATTENTION, q, k, v, scale)
        if plain and fused and q.is_cuda and q.dtype == torch.float32 and q.shape[-1] % 4 == 0:
            self.kernel = "torch efficient (cuda)"
            return _pinned(SDPBackend.EFFICIENT_ATTENTION, q, k, v, scale)
        if flex.takes(q, v):
            self.kernel = "flex attention (cuda)"
            return flex.attend(q, k, v, site, scale)
        self.kernel = "strips"
        bias = q.new_zeros(q.shape[1], reach, dtype=working) if bias is None else bias.to(working)
        sums = None if log_gates is None else cumulative_log_gates(log_gates)
        result: Tensor = Strips.apply(q, k, v, bias, sums, positions, scale)  # type: ignore[no-untyped-call]
        return result


def _pinned(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    with sdpa_kernel(backend):
        mixed = scaled_dot_product_attention(q, k, _as_wide(v, q), is_causal=True, scale=scale)
    return mixed[..., : v.shape[-1]]


def _as_wide(v: Tensor, q: Tensor) -> Tensor:
    """v, padded with zeros to the width of q: the fused kernels take no other, and PoPE doubles that of q."""
    missing = q.shape[-1] - v.shape[-1]
    return v if missing == 0 else pad(v, (0, missing))


@cache
def _has_flash_attn() -> bool:
    try:
        from flash_attn import flash_attn_func  # noqa: F401
    except (ImportError, OSError):  # not installed, or built for another PyTorch
        return False
    return True


def _fixed_slopes(scheme: Scheme, bias: Tensor) -> Tensor | None:
    """(H,) slopes m_h of a bias -m_h t that is not learned, at consecutive positions; else None."""
    tail = scheme.tail()
    if tail is None or tail.horizon or bias.requires_grad or not scheme.geometry.consecutive:
        return None
    return -tail.log_decay


def _flash_attn(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None, scale: float) -> Tensor:
    from flash_attn import flash_attn_func

    if slopes is not None:
        slopes = slopes.to(q.device, torch.float32)
    # (B, H, T, K) here, (B, T, H, K) there
    swapped = (tensor.transpose(1, 2) for tensor in (q, k, _as_wide(v, q)))
    mixed: Tensor = flash_attn_func(*swapped, softmax_scale=scale, causal=True, alibi_slopes=slopes)
    return mixed.transpose(1, 2)[..., : v.shape[-1]]


class Strips(Function):
    """Causal softmax attention with a bias by distance and with gates, STRIP queries at a time.

    Backward recomputes the weights of each strip from q, k, v, the bias, the gates' sums and the output (Dao
    et al. 2022, algorithm 4, with blocks as wide as the keys, so that no running sum is needed).

    Shapes: Q queries of a strip, N distances or keys, W width of queries and keys after the rotation.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Float[Tensor, "B H T W"],
        k: Float[Tensor, "B H T W"],
        v: Float[Tensor, "B H T K"],
        bias: Float[Tensor, "H N"],
        gate_sums: Float[Tensor, "B H T"] | None,
        positions: Int[Tensor, "T"],
        scale: float,
    ) -> Float[Tensor, "B H T K"]:
        output = torch.empty_like(v)
        for start, stop in _strips(q.shape[-2]):
            weights = _strip_weights(q, k, bias, gate_sums, positions, scale, start, stop)
            output[..., start:stop, :] = (weights @ v[..., :stop, :].to(bias.dtype)).to(v.dtype)
        ctx.save_for_backward(q, k, v, bias, gate_sums, positions, output)
        ctx.scale = scale
        return output

    @staticmethod
    def backward(
        ctx: Any, gradient: Float[Tensor, "B H T K"]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, None, None]:
        q, k, v, bias, gate_sums, positions, output = ctx.saved_tensors
        working, scale = bias.dtype, ctx.scale
        q_gradient = torch.empty_like(q)
        k_gradient = torch.zeros_like(k, dtype=working)
        v_gradient = torch.zeros_like(v, dtype=working)
        bias_gradient = torch.zeros_like(bias) if ctx.needs_input_grad[3] else None
        gate_sums_gradient = torch.zeros_like(gate_sums) if ctx.needs_input_grad[4] else None
        # sum_j weight_ij * d weight_ij, which softmax's Jacobian subtracts, is <d output_i, output_i>
        shared = (gradient.to(working) * output.to(working)).sum(dim=-1, keepdim=True)
        for start, stop in _strips(q.shape[-2]):
            rows, keys = slice(start, stop), slice(0, stop)
            weights = _strip_weights(q, k, bias, gate_sums, positions, scale, start, stop)
            row_gradient = gradient[..., rows, :].to(working)
            v_gradient[..., keys, :] += weights.mT @ row_gradient
            score_gradient = row_gradient @ v[..., keys, :].to(working).mT
            score_gradient.sub_(shared[..., rows, :]).mul_(weights)
            if bias_gradient is not None:
                distance = distances(positions, start, stop).clamp(min=0)  # masked scores have no gradient
                bias_gradient.index_add_(1, distance.flatten(), score_gradient.sum(dim=0).flatten(1))
            if (
                gate_sums_gradient is not None
            ):  # a query's own sum shifts its whole row, which softmax ignores
                gate_sums_gradient[..., keys] -= score_gradient.sum(dim=-2)
            q_gradient[..., rows, :] = (score_gradient @ (k[..., keys, :].to(working) * scale)).to(q.dtype)
            k_gradient[..., keys, :] += score_gradient.mT @ (q[..., rows, :].to(working) * scale)
        return (
            q_gradient,
            k_gradient.to(k.dtype),
            v_gradient.to(v.dtype),
            bias_gradient,
            gate_sums_gradient,
            None,
            None,
        )


def _strips(length: int) -> list[tuple[int, int]]:
    return [(start, min(start + STRIP, length)) for start in range(0, length, STRIP)]


def _strip_weights(
    q: Tensor,
    k: Tensor,
    bias: Tensor,
    gate_sums: Tensor | None,
    positions: Tensor,
    scale: float,
    start: int,
    stop: int,
) -> Float[Tensor, "B H Q N"]:
    """The attention weights of the queries [start, stop) on the keys [0, stop)."""
    distance = distances(positions, start, stop)
    # The bias and the mask are one (H, Q, N) matrix: the scores, a batch larger, are passed over once.
    masked_bias = bias[:, distance.clamp(min=0)].masked_fill_(distance < 0, -torch.inf)
    scores = (q[..., start:stop, :].to(bias.dtype) * scale) @ k[..., :stop, :].to(bias.dtype).mT
    if gate_sums is not None:
        # Counted from the strip's start in float64, so that near keys keep all digits in float32.
        first = gate_sums[..., start, None]
        rows, keys = (
            (gate_sums[..., part] - first).to(bias.dtype) for part in (slice(start, stop), slice(stop))
        )
        scores.add_(rows[..., :, None]).sub_(keys[..., None, :])
    weights: Tensor = scores.add_(masked_bias).softmax(dim=-1)
    return weights


def _pairwise_strips(
    q: Float[Tensor, "B H T W"],
    k: Float[Tensor, "B H T W"],
    v: Float[Tensor, "B H T K"],
    site: Site,
    scale: float,
) -> Float[Tensor, "B H T K"]:
    """Attention under a bias by both positions, a strip of queries at a time, recomputed in backward."""
    positions = site.positions
    working = torch.promote_types(q.dtype, torch.float32)
    gate_sums = None if site.log_gates is None else cumulative_log_gates(site.log_gates)

    def strip(start: int, stop: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = (q.to(working) * scale) @ k.to(working).mT
        bias = site.scheme.pairwise_bias(positions[start:stop], positions[:stop])
        if bias is not None:
            scores = scores + bias.to(working)
        if gate_sums is not None:
            scores = scores + (gate_sums[..., start:stop, None] - gate_sums[..., None, :stop]).to(working)
        weights = scores.masked_fill(distances(positions, start, stop) < 0, -torch.inf).softmax(dim=-1)
        return (weights @ v.to(working)).to(v.dtype)

    parts = [
        checkpoint(
            strip,
            start,
            stop,
            q[..., start:stop, :],
            k[..., :stop, :],
            v[..., :stop, :],
            use_reentrant=False,
            preserve_rng_state=False,
        )
        for start, stop in _strips(q.shape[-2])
    ]
    return torch.cat(parts, dim=-2)
