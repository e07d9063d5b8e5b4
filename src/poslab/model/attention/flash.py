"""Softmax attention without a T x T matrix, forward or backward (Dao et al. 2022, arXiv 2205.14135).

The kernel depends on the device, the dtype and the bias, and the run record names it. On CUDA it is pinned:

    flash-attn          no bias, or a fixed linear one (ALiBi), also in a window: CUDA in float16 or bfloat16
                        if the package is installed (kernels/flash_attn.py)
    torch flash         no bias: CPU in any dtype (short sequences in blocks, kernels/cpu_causal.py), CUDA in
                        float16 or bfloat16
    torch flash, in one call
                        the same on a CPU if PyTorch lacks the private operators for blocks
    torch efficient     no bias: CUDA in float32, head widths that are multiples of 4
    torch flash, sliding bias
                        a bias by distance or a window, without gates or sinks, at positions 0, 1, 2, ...: CPU
                        (kernels/sliding.py)
    flex attention      other cases on CUDA with heads 16 to 256 wide, except `products` and a bias by both
                        positions (kernels/flex.py)
    torch flash, near bias
                        a content bias and nothing else: CPU, not in half precision (kernels/near.py)
    strips              other cases, such as sinks on a CPU: a strip of queries at a time, recomputed in
                        backward (kernels/strips.py)
    strips, checkpointed
                        the same for `products` and for a bias by both positions or by the query's content
    torch attention, two-sided
                        a geometry that is not causal: PyTorch's choice of a kernel, any bias as T x T
"""

from contextlib import nullcontext

import torch
from jaxtyping import Float
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

from poslab.config.schema import Options
from poslab.model.attention import Attention, Site, added_to_logits, cumulative_log_gates
from poslab.model.kernels import flash_attn, flex
from poslab.model.kernels.cpu_causal import BLOCK, Blocks, available, longest
from poslab.model.kernels.near import NearBias
from poslab.model.kernels.sliding import Sliding
from poslab.model.kernels.strips import Strips, pairwise_strips
from poslab.model.positions import Geometry, Scheme

WIDEST_FUSED_HEAD = 256


class Flash(Attention):
    form = "fused"
    two_sided = True
    windowed = True
    takes_sinks = True

    def __init__(self, options: Options, geometry: Geometry, scheme: Scheme) -> None:
        super().__init__(options, geometry, scheme)
        # Not checked in `attend`, where a failed import would break the graph of a compiled block.
        self.has_flash_attn = torch.cuda.is_available() and flash_attn.installed()

    def attend(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        v: Float[Tensor, "B H T K"],
        site: Site,
    ) -> Float[Tensor, "B H T K"]:
        scheme, positions, log_gates = site.scheme, site.positions, site.log_gates
        scale = q.shape[-1] ** -0.5
        q = site.turned_queries(scheme.logit_features(q))
        k = site.turned_keys(scheme.logit_features(k))
        working = torch.promote_types(q.dtype, torch.float32)
        if not scheme.geometry.causal:
            return self._two_sided(q, k, v, site, scale)
        if scheme.overrides("products"):
            self.kernel = "strips, checkpointed"
            return pairwise_strips(q, k, v, site, scale)
        if not scheme.by_distance:
            if flex.takes(q, v) and not scheme.overrides("pairwise_bias"):
                self.kernel = "flex attention (cuda)"
                return flex.attend(q, k, v, site, scale)
            if _near_bias_applies(q, site) and _has_blocks():
                self.kernel = "torch flash, near bias (cpu)"
                r, table = (x.to(q.dtype) for x in site.content_bias or ())
                mixed = NearBias.apply(q, k, _as_wide(v, q), r, table, scale)  # type: ignore[no-untyped-call]
                return mixed[..., : v.shape[-1]]
            self.kernel = "strips, checkpointed"
            return pairwise_strips(q, k, v, site, scale)
        reach = scheme.geometry.reach(q.shape[-2])
        bias = scheme.bias_within(reach, q.device)
        window = scheme.geometry.window
        if window is not None and window >= reach:
            window = None
        # The fused CUDA kernels take heads of up to 256 numbers.
        narrow = q.device.type == "cpu" or q.shape[-1] <= WIDEST_FUSED_HEAD
        half = q.dtype in (torch.float16, torch.bfloat16)
        slopes = None if bias is None else flash_attn.fixed_slopes(scheme, bias)
        by_distance_only = log_gates is None and site.sinks is None
        plain = bias is None and by_distance_only
        sloped = slopes is not None and by_distance_only
        if q.is_cuda and narrow and half and (plain or sloped) and self.has_flash_attn:
            self.kernel = "flash-attn"
            return flash_attn.attend(q, k, _as_wide(v, q), slopes, window, scale)[..., : v.shape[-1]]
        if plain and narrow and (q.device.type == "cpu" or half):
            whole = "" if q.is_cuda or _has_blocks() else ", in one call"
            self.kernel = f"torch flash{whole} ({q.device.type})"
            return _fused(SDPBackend.FLASH_ATTENTION, q, k, v, scale)
        if plain and narrow and q.is_cuda and q.dtype == torch.float32 and q.shape[-1] % 4 == 0:
            self.kernel = "torch efficient (cuda)"
            return _fused(SDPBackend.EFFICIENT_ATTENTION, q, k, v, scale)
        if flex.takes(q, v):
            self.kernel = "flex attention (cuda)"
            return flex.attend(q, k, v, site, scale)
        bias = q.new_zeros(q.shape[1], reach, dtype=working) if bias is None else bias.to(working)
        if q.device.type == "cpu" and by_distance_only and scheme.geometry.consecutive and _has_blocks():
            self.kernel = "torch flash, sliding bias (cpu)"
            mixed = Sliding.apply(q, k, _as_wide(v, q), bias, scale)  # type: ignore[no-untyped-call]
            return mixed[..., : v.shape[-1]]
        self.kernel = "strips"
        sums = None if log_gates is None else cumulative_log_gates(log_gates)
        gaps = None if scheme.geometry.consecutive else positions
        return Strips.apply(q, k, v, bias, sums, site.sinks, gaps, window, scale)  # type: ignore[no-untyped-call]

    def _two_sided(
        self,
        q: Float[Tensor, "B H T W"],
        k: Float[Tensor, "B H T W"],
        v: Float[Tensor, "B H T K"],
        site: Site,
        scale: float,
    ) -> Float[Tensor, "B H T K"]:
        """Attend with a kernel of PyTorch's choice; a bias is formed as a T x T matrix."""
        self.kernel = f"torch attention, two-sided ({q.device.type})"
        added = added_to_logits(site, torch.promote_types(q.dtype, torch.float32))
        mask = None if added.numel() == 1 else added
        if site.sinks is not None:  # a sink is the score of one extra key, a vector of zeros with the value 0
            k, v = pad(k, (0, 0, 0, 1)), pad(v, (0, 0, 0, 1))
            key_mask = added.expand(-1, q.shape[1], q.shape[2], q.shape[2])
            sink_mask = site.sinks[:, None, None].to(added.dtype).expand(*key_mask.shape[:-1], 1)
            mask = torch.cat([key_mask, sink_mask], dim=-1)
        wide = _as_wide(v, q)
        if mask is not None and q.is_cuda:  # CUDA kernels refuse, or misread, a mask of another dtype
            q, k, wide = (x.to(mask.dtype) for x in (q, k, wide))
        mixed = scaled_dot_product_attention(q, k, wide, attn_mask=mask, scale=scale)
        return mixed[..., : v.shape[-1]].to(v.dtype)


def _near_bias_applies(q: Tensor, site: Site) -> bool:
    """Return whether a content bias is the only term added to logits, and `NearBias` supports the case."""
    scheme = site.scheme
    only_term = not any(map(scheme.overrides, ("bias", "pairwise_bias", "log_gates"))) and site.sinks is None
    unbroken = scheme.geometry.consecutive and scheme.geometry.window is None
    supported = q.device.type == "cpu" and q.dtype.itemsize >= 4
    return site.content_bias is not None and only_term and unbroken and supported


def _has_blocks() -> bool:
    """Return whether PyTorch's private operators exist; True while compiling, as a check breaks graphs."""
    return is_compiling() or available()


def _fused(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    # The kernels need the elements of a head to be contiguous; those of rotated heads of width 2 are not.
    q, k, wide = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, _as_wide(v, q)))
    # In half precision the kernel's backward pass takes longer in blocks.
    blocks = q.device.type == "cpu" and q.dtype.itemsize >= 4
    if blocks and BLOCK < q.shape[-2] <= longest() and not is_compiling() and available():
        mixed: Tensor = Blocks.apply(q, k, wide, scale)  # type: ignore[no-untyped-call]
    else:
        with sdpa_kernel(backend) if q.is_cuda else nullcontext():  # all threads share its switches
            mixed = scaled_dot_product_attention(q, k, wide, is_causal=True, scale=scale)
    return mixed[..., : v.shape[-1]]


def _as_wide(v: Tensor, q: Tensor) -> Tensor:
    """Return v padded with zeros to the width of q: fused kernels need equal widths, and PoPE doubles q's."""
    missing = q.shape[-1] - v.shape[-1]
    return v if missing == 0 else pad(v, (0, missing))
