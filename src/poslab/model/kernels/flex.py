"""Softmax attention on CUDA for schemes without another fused form, by FlexAttention (Dong et al. 2024).

PyTorch compiles one kernel that changes each score where it is formed (arXiv 2412.05496). Biases and gates
are read from tensors: a bias by distance from a table, a bias by both positions from a strip of queries, a
bias by content from each query's numbers by distance, gates from their sums. Gradients are summed at the
places that were read, so learned biases train. Blocks of keys after all of a block's queries are left out.
Sinks take their share of the result, by the logarithm of each query's sum of exponentials.

The tensors are arguments of the compiled function or computed in the same graph: with a break in between,
PyTorch has lost a bias's gradient without a warning (pytorch/pytorch#162228).

Shapes: Q queries of a strip, N distances or keys, W width of queries and keys after the rotation.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import Function
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from poslab.model.attention import Site, cumulative_log_gates

BLOCK = 128  # queries and keys in a block of the mask
STRIP = 4 * BLOCK  # queries that have their bias by both positions in memory at a time
NARROWEST, WIDEST = 16, 256  # head widths that the kernel takes
FORMS = 64  # that one function may be compiled in
STEP = 256.0  # sums of gates are split into multiples of this and the rest


def takes(q: Float[Tensor, "B H T W"], v: Float[Tensor, "B H T K"]) -> bool:
    """Whether there is a kernel for such queries and values."""
    fits = min(q.shape[-1], v.shape[-1]) >= NARROWEST and max(q.shape[-1], v.shape[-1]) <= WIDEST
    return q.is_cuda and q.dtype in (torch.float16, torch.bfloat16, torch.float32) and fits


def attend(
    q: Float[Tensor, "B H T W"],
    k: Float[Tensor, "B H T W"],
    v: Float[Tensor, "B H T K"],
    site: Site,
    scale: float,
) -> Float[Tensor, "B H T K"]:
    """Causal softmax attention of rotated queries and keys, with the scheme's bias and gates."""
    working = torch.promote_types(q.dtype, torch.float32)
    coarse, fine = (None, None) if site.log_gates is None else split_sums(site.log_gates, working)
    if site.scheme.overrides("pairwise_bias"):
        learned = [*site.scheme.learned(), *([] if site.sinks is None else [site.sinks])]
        return _InStrips.apply(q, k, v, coarse, fine, site, scale, *learned)  # type: ignore[no-untyped-call]
    geometry = site.scheme.geometry
    bias = site.scheme.bias_within(geometry.reach(q.shape[-2]), q.device)
    table = None if bias is None else bias.to(working)
    content = site.content_bias
    profiles = None if content is None else content.profiles(0, q.shape[-2]).to(working)
    call = attend_with if torch.compiler.is_compiling() else kernel(q.device)
    first = _number(0, q.device)
    added = coarse, fine, profiles, site.sinks
    return call(q, k, v, table, *added, site.positions, first, geometry.window, scale)


class _InStrips(Function):
    """Attention under a bias by both positions, STRIP queries at a time, formed again in backward.

    A perceptron's tensors for backward are many times a strip, so they are not saved. This is not
    torch.utils.checkpoint, under which the uncompiled backward of FlexAttention gives a learned bias wrong
    gradients without a warning (PyTorch 2.13, which asks saved tensors whether they require one).
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        coarse: Tensor | None,
        fine: Tensor | None,
        site: Site,
        scale: float,
        *parameters: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, coarse, fine)
        ctx.site, ctx.scale, ctx.parameters = site, scale, parameters
        parts = [_strip(start, rows, k, v, coarse, fine, site, scale) for start, rows in _strips(q)]
        return torch.cat(parts, dim=-2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, coarse, fine = ctx.saved_tensors
        wide = torch.promote_types(q.dtype, torch.float32)
        keys, values = (x.detach().requires_grad_() for x in (k, v))
        sums = None if fine is None else fine.detach().requires_grad_()
        shared = [keys, values, *([] if sums is None else [sums]), *ctx.parameters]
        totals = [torch.zeros_like(x, dtype=torch.promote_types(x.dtype, wide)) for x in shared]
        q_gradients = []
        for (start, rows), (_, row_gradient) in zip(_strips(q), _strips(gradient), strict=True):
            with torch.enable_grad():
                queries = rows.detach().requires_grad_()
                mixed = _strip(start, queries, keys, values, coarse, sums, ctx.site, ctx.scale)
            strip, *parts = torch.autograd.grad(mixed, [queries, *shared], row_gradient, allow_unused=True)
            q_gradients.append(strip)
            for total, part in zip(totals, parts, strict=True):
                if part is not None:
                    total += part
        summed = iter(total.to(x.dtype) for total, x in zip(totals, shared, strict=True))
        k_gradient, v_gradient = next(summed), next(summed)
        fine_gradient = None if fine is None else next(summed)
        q_gradient = torch.cat(q_gradients, dim=-2)
        return q_gradient, k_gradient, v_gradient, None, fine_gradient, None, None, *summed


def _strips(rows: Float[Tensor, "B H T W"]) -> Iterator[tuple[int, Float[Tensor, "B H Q W"]]]:
    """Yield the number of each strip's first row, and its rows."""
    for start in range(0, rows.shape[-2], STRIP):
        yield start, rows[..., start : start + STRIP, :]


def _strip(
    start: int,
    queries: Tensor,
    k: Tensor,
    v: Tensor,
    coarse: Tensor | None,
    fine: Tensor | None,
    site: Site,
    scale: float,
) -> Tensor:
    rows = site.positions[start : start + queries.shape[-2]]
    bias = site.scheme.pairwise_bias(rows, site.positions)
    window = site.scheme.geometry.window
    if bias is not None and window is not None:
        bias = bias.masked_fill(rows[:, None] - site.positions >= window, -torch.inf)
    added = None if bias is None else bias.to(torch.promote_types(queries.dtype, torch.float32))
    first = _number(start, queries.device)
    call, sinks = kernel(queries.device), site.sinks
    return call(queries, k, v, added, coarse, fine, None, sinks, site.positions, first, window, scale)


def _number(value: int, device: torch.device) -> Int[Tensor, "1"]:
    """Create the number on the device: a copy would make the processor wait."""
    return torch.full((1,), value, dtype=torch.int32, device=device)


def split_sums(
    log_gates: Float[Tensor, "B H T"], dtype: torch.dtype
) -> tuple[Float[Tensor, "B H T"], Float[Tensor, "B H T"]]:
    """Return the gates' sums F as coarse + fine, coarse a multiple of STEP, which float32 holds exactly.

    So the difference of two sums keeps its digits far from the sequence's start, where F is large. The
    gradient passes through `fine`.
    """
    sums = cumulative_log_gates(log_gates)
    coarse = (sums.detach() / STEP).round() * STEP
    return coarse.to(dtype), (sums - coarse).to(dtype)


def attend_with(
    q: Float[Tensor, "B H Q W"],
    k: Float[Tensor, "B H T W"],
    v: Float[Tensor, "B H T K"],
    bias: Float[Tensor, "H N"] | Float[Tensor, "H Q T"] | None,
    coarse: Float[Tensor, "B H T"] | None,
    fine: Float[Tensor, "B H T"] | None,
    profiles: Float[Tensor, "B H T N"] | None,
    sinks: Float[Tensor, "H"] | None,
    positions: Int[Tensor, "T"],
    first: Int[Tensor, "1"],
    window: int | None,
    scale: float,
) -> Float[Tensor, "B H Q K"]:
    """Causal attention of the queries from number `first`, a multiple of BLOCK.

    `bias` is by distance, or of these queries and all keys, and -inf out of the window; `coarse` + `fine` are
    the sums of gates, and `profiles` each query's own bias by distance, the last that of all farther keys.
    """
    # Read at two places, and PyTorch compiles the gradient of each tensor at one place only.
    fine_at_keys = None if fine is None else fine.clone()

    def added(score: Tensor, b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        row = query + first[0]
        if bias is not None and bias.ndim == 2:
            score = score + bias[h, (positions[row] - positions[key]).clamp(min=0)]
        elif bias is not None:
            score = score + bias[h, query, key]
        if profiles is not None:
            back = (positions[row] - positions[key]).clamp(0, profiles.shape[-1] - 1)
            score = score + profiles[b, h, row, back]
        if coarse is not None and fine is not None and fine_at_keys is not None:
            # Without sinks the gradient at `row` is only rounding, since softmax ignores a shift of a whole
            # row. In half precision it cancels the same rounding at `key`, which the sums would add up.
            score = score + (coarse[b, h, row] - coarse[b, h, key])
            score = score + (fine[b, h, row] - fine_at_keys[b, h, key])
        return score

    def causal(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return query + first[0] >= key

    mask = _blocks(first, q.shape[-2], k.shape[-2], window, causal)
    if sinks is None:
        mixed = flex_attention(q, k, v, score_mod=added, block_mask=mask, scale=scale)
        assert isinstance(mixed, Tensor)  # other arguments would add results
        return mixed
    mixed, sums = flex_attention(
        q, k, v, score_mod=added, block_mask=mask, scale=scale, return_aux=AuxRequest(lse=True)
    )
    assert sums.lse is not None
    share = (sums.lse - sinks[:, None].to(sums.lse.dtype)).sigmoid()
    return (mixed * share[..., None]).to(mixed.dtype)


def _blocks(
    first: Int[Tensor, "1"], queries: int, keys: int, window: int | None, causal: Callable[..., Tensor]
) -> BlockMask:
    """Mask, for each block of queries, the keys on the diagonal in part; blocks before it are whole.

    Blocks before the window are left out; the bias is -inf in the part of a block that is.
    """
    row_count, column_count = -(-queries // BLOCK), -(-keys // BLOCK)
    rows = first // BLOCK + torch.arange(row_count, dtype=torch.int32, device=first.device)
    columns = torch.arange(column_count, dtype=torch.int32, device=first.device)
    in_part = ((columns + rows[:, None]) % column_count).to(torch.int32)  # the diagonal block is first
    whole = rows
    if window is not None:  # the last query that sees block c's last key is that of the window after it
        whole = rows.clamp(max=(window - 2) // BLOCK + 1)
    backwards = ((rows[:, None] - 1 - columns) % column_count).to(torch.int32)
    return BlockMask.from_kv_blocks(
        torch.ones_like(rows)[None, None],
        in_part[None, None],
        whole[None, None],
        backwards[None, None].contiguous(),
        BLOCK_SIZE=BLOCK,
        mask_mod=causal,
        seq_lengths=(queries, keys),
    )


def kernel(device: torch.device) -> Callable[..., Tensor]:
    """Return `attend_with`, on CUDA compiled; a failed compilation is an error, never the slow form."""
    return _compiled() if device.type == "cuda" else attend_with


@cache
def _compiled() -> Callable[..., Tensor]:
    # Layers of several kinds call it in more forms (a bias, a window, backwards) than PyTorch's limit of 8.
    limits: Any = torch.compiler.config
    limits.recompile_limit = max(limits.recompile_limit, FORMS)
    return torch.compile(attend_with, fullgraph=True)
