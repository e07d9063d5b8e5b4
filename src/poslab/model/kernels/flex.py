"""Softmax attention on CUDA for schemes without another fused form, with FlexAttention (Dong et al. 2024).

PyTorch compiles one kernel that changes each score where it is formed (arXiv 2412.05496). Biases and gates
are read from tensors: a bias by distance from a table, a bias by content from each query's values by
distance, and gates from their sums. Gradients are added up in those tensors, so learned biases train. Blocks
of keys after all queries of a block are skipped. Sinks take their share of the result by each query's
log-sum-exp.

The tensors are arguments of the compiled function or computed in the same graph: with a graph break between
them, PyTorch has lost a bias's gradient without a warning (pytorch/pytorch#162228).

Shapes: N distances, W width of queries and keys after the rotation.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from poslab.model.attention import Site, cumulative_log_gates

BLOCK = 128  # queries and keys in a block of the mask
NARROWEST, WIDEST = 16, 256  # head widths that the kernel takes
FORMS = 64  # the most forms in which one function may be compiled
STEP = 256.0  # sums of gates are split into multiples of this and the rest


def takes(q: Float[Tensor, "B H T W"], v: Float[Tensor, "B H T K"]) -> bool:
    """Return whether the kernel supports these queries and values."""
    fits = min(q.shape[-1], v.shape[-1]) >= NARROWEST and max(q.shape[-1], v.shape[-1]) <= WIDEST
    return q.is_cuda and q.dtype in (torch.float16, torch.bfloat16, torch.float32) and fits


def attend(
    q: Float[Tensor, "B H T W"],
    k: Float[Tensor, "B H T W"],
    v: Float[Tensor, "B H T K"],
    site: Site,
    scale: float,
) -> Float[Tensor, "B H T K"]:
    """Return causal softmax attention of rotated queries and keys, with the scheme's bias and gates."""
    working = torch.promote_types(q.dtype, torch.float32)
    coarse, fine = (None, None) if site.log_gates is None else split_sums(site.log_gates, working)
    geometry = site.scheme.geometry
    bias = site.scheme.bias_within(geometry.reach(q.shape[-2]), q.device)
    table = None if bias is None else bias.to(working)
    content = site.content_bias
    profiles = None if content is None else content.profiles(0, q.shape[-2]).to(working)
    compiled = q.is_cuda and not torch.compiler.is_compiling()
    call = _compiled() if compiled else attend_with
    return call(q, k, v, table, coarse, fine, profiles, site.sinks, site.positions, geometry.window, scale)


def split_sums(
    log_gates: Float[Tensor, "B H T"], dtype: torch.dtype
) -> tuple[Float[Tensor, "B H T"], Float[Tensor, "B H T"]]:
    """Return the gates' sums F as coarse + fine; coarse is a multiple of STEP, which float32 holds exactly.

    The difference of two sums therefore keeps its digits far from the sequence's start, where F is large.
    The gradient passes through `fine`.
    """
    sums = cumulative_log_gates(log_gates)
    coarse = (sums.detach() / STEP).round() * STEP
    return coarse.to(dtype), (sums - coarse).to(dtype)


def attend_with(
    q: Float[Tensor, "B H T W"],
    k: Float[Tensor, "B H T W"],
    v: Float[Tensor, "B H T K"],
    bias: Float[Tensor, "H N"] | None,
    coarse: Float[Tensor, "B H T"] | None,
    fine: Float[Tensor, "B H T"] | None,
    profiles: Float[Tensor, "B H T N"] | None,
    sinks: Float[Tensor, "H"] | None,
    positions: Int[Tensor, "T"],
    window: int | None,
    scale: float,
) -> Float[Tensor, "B H T K"]:
    """Return causal attention.

    `bias` is by distance, and -inf outside the window. `coarse` + `fine` are the gates' sums. `profiles`
    holds each query's own bias by distance; its last column is for all keys further back.
    """
    # Cloned, since PyTorch compiles a tensor's gradient only for one place where it is read.
    fine_at_keys = None if fine is None else fine.clone()

    def added(score: Tensor, b: Tensor, h: Tensor, row: Tensor, key: Tensor) -> Tensor:
        if bias is not None:
            score = score + bias[h, (positions[row] - positions[key]).clamp(min=0)]
        if profiles is not None:
            back = (positions[row] - positions[key]).clamp(0, profiles.shape[-1] - 1)
            score = score + profiles[b, h, row, back]
        if coarse is not None and fine is not None and fine_at_keys is not None:
            # Without sinks the gradient at `row` is only rounding, since softmax ignores a shift of a whole
            # row. In half precision it cancels the same rounding at `key`, which the sums would accumulate.
            score = score + (coarse[b, h, row] - coarse[b, h, key])
            score = score + (fine[b, h, row] - fine_at_keys[b, h, key])
        return score

    def causal(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return query >= key

    mask = _blocks(q.shape[-2], q.device, window, causal)
    if sinks is None:
        mixed = flex_attention(q, k, v, score_mod=added, block_mask=mask, scale=scale)
        assert isinstance(mixed, Tensor)  # with other arguments there are more results
        return mixed
    mixed, sums = flex_attention(
        q, k, v, score_mod=added, block_mask=mask, scale=scale, return_aux=AuxRequest(lse=True)
    )
    assert sums.lse is not None
    share = (sums.lse - sinks[:, None].to(sums.lse.dtype)).sigmoid()
    return (mixed * share[..., None]).to(mixed.dtype)


def _blocks(
    length: int, device: torch.device, window: int | None, causal: Callable[..., Tensor]
) -> BlockMask:
    """Return the block mask: for a block of queries, the diagonal block in part, earlier blocks whole.

    Blocks before the window are left out. In a block that is partly before it, the bias is -inf there.
    """
    count = -(-length // BLOCK)
    rows = columns = torch.arange(count, dtype=torch.int32, device=device)
    in_part = ((columns + rows[:, None]) % count).to(torch.int32)  # the diagonal block is first
    whole = rows
    if window is not None:  # a block counts if the first query sees its last key, under `window` tokens back
        whole = rows.clamp(max=(window - 2) // BLOCK + 1)
    backwards = ((rows[:, None] - 1 - columns) % count).to(torch.int32)
    return BlockMask.from_kv_blocks(
        torch.ones_like(rows)[None, None],
        in_part[None, None],
        whole[None, None],
        backwards[None, None].contiguous(),
        BLOCK_SIZE=BLOCK,
        mask_mod=causal,
        seq_lengths=(length, length),
    )


@cache
def _compiled() -> Callable[..., Tensor]:
    """Return `attend_with`, compiled; if that fails, raise an error instead of running the slow form."""
    # Layers of several kinds call it in more forms (a bias, a window, backward) than PyTorch's limit of 8.
    limits: Any = torch.compiler.config
    limits.recompile_limit = max(limits.recompile_limit, FORMS)
    return torch.compile(attend_with, fullgraph=True)
