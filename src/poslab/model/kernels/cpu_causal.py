"""Causal softmax attention with PyTorch's fused kernel for CPUs, a block of queries at a time.

The kernel skips the keys after a query only in pieces of 512. Up to that length it therefore forms every
score, and the mask removes nearly half of them. Called for each block of queries with the keys up to its last
query, it forms few masked scores: 512 tokens take two thirds of the time.

Shapes: R queries of a block, N keys, W width of queries, keys and values.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

BLOCK = 64  # queries per call
# The most tokens for which blocks are used: beyond, one call skips enough keys. Several threads wait for one
# another at the end of each call.
LONGEST, LONGEST_ON_ONE_THREAD = 512, 1024

# Private operators, which another version of PyTorch may lack: see `available`.
forward_kernel: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
backward_kernel: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)


@cache
def available() -> bool:
    """Return whether PyTorch has the kernel with these arguments, checked once against plain products."""
    x = torch.linspace(-1, 1, 8, device="cpu", dtype=torch.float32).view(1, 1, 4, 2)
    table = _causal(x)
    try:
        output, logsumexp = attend_in_blocks(x, x, x, table, 1.0)
        gradients = gradients_in_blocks(x, x, x, x, output, logsumexp, table, 1.0)
        scores = x @ x.mT + table
        weights = scores.softmax(dim=-1)
        d_scores = weights * (x @ x.mT - (x * output).sum(dim=-1, keepdim=True))
        expected = weights @ x, scores.logsumexp(dim=-1), d_scores @ x, d_scores.mT @ x, weights.mT @ x
        results = output, logsumexp, *gradients
        return all(torch.allclose(*pair, atol=1e-5) for pair in zip(results, expected, strict=True))
    except Exception:  # missing, or with other arguments
        return False


def longest() -> int:
    """Return the most tokens for which blocks are faster than one call."""
    return LONGEST_ON_ONE_THREAD if torch.get_num_threads() == 1 else LONGEST


class Blocks(Function):
    """Causal softmax attention without a bias."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Float[Tensor, "B H T W"],
        k: Float[Tensor, "B H T W"],
        v: Float[Tensor, "B H T W"],
        scale: float,
    ) -> Float[Tensor, "B H T W"]:
        table = _causal(q)
        output, logsumexp = attend_in_blocks(q, k, v, table, scale)
        ctx.save_for_backward(q, k, v, output, logsumexp, table)
        ctx.scale = scale
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "B H T W"]) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, output, logsumexp, table = ctx.saved_tensors
        return *gradients_in_blocks(gradient, q, k, v, output, logsumexp, table, ctx.scale), None


def attend_in_blocks(
    q: Float[Tensor, "B H T W"],
    k: Float[Tensor, "B H T W"],
    v: Float[Tensor, "B H T W"],
    table: Float[Tensor, "1 #H R T"],
    scale: float,
) -> tuple[Float[Tensor, "B H T W"], Float[Tensor, "B H T"]]:
    """Return the mixed values, and the log-sum-exp of each query's scores.

    `table` is added to the scores of the last R queries, where R is the smaller of BLOCK and T. It holds a
    bias by distance, and -inf for the keys after a query. The other blocks use a part of it.
    """
    output = torch.empty_like(q.transpose(1, 2), memory_format=torch.contiguous_format).transpose(1, 2)
    logsumexp = table.new_empty(q.shape[:-1])
    for rows, keys, mask in _blocks(table):
        output[:, :, rows], logsumexp[:, :, rows] = forward_kernel(
            q[:, :, rows], k[:, :, keys], v[:, :, keys], 0.0, False, attn_mask=mask, scale=scale
        )
    return output, logsumexp


def gradients_in_blocks(
    gradient: Float[Tensor, "B H T W"],
    q: Float[Tensor, "B H T W"],
    k: Float[Tensor, "B H T W"],
    v: Float[Tensor, "B H T W"],
    output: Float[Tensor, "B H T W"],
    logsumexp: Float[Tensor, "B H T"],
    table: Float[Tensor, "1 #H R T"],
    scale: float,
) -> tuple[Float[Tensor, "B H T W"], Float[Tensor, "B H T W"], Float[Tensor, "B H T W"]]:
    """Return the gradients of q, k and v, from the arguments and results of `attend_in_blocks`."""
    q_gradient = torch.empty_like(output)
    k_gradient = v_gradient = torch.empty(0)
    # The last block first: it has all keys, so its gradients are the tensors that the others are added to.
    for rows, keys, mask in reversed([*_blocks(table)]):
        q_gradient[:, :, rows], d_k, d_v = backward_kernel(
            gradient[:, :, rows],
            q[:, :, rows],
            k[:, :, keys],
            v[:, :, keys],
            output[:, :, rows],
            logsumexp[:, :, rows],
            0.0,
            False,
            attn_mask=mask,
            scale=scale,
        )
        if keys.stop == q.shape[-2]:
            k_gradient, v_gradient = d_k, d_v
        else:
            k_gradient[:, :, keys] += d_k
            v_gradient[:, :, keys] += d_v
    return q_gradient, k_gradient, v_gradient


def _blocks(table: Float[Tensor, "1 #H R T"]) -> Iterator[tuple[slice, slice, Float[Tensor, "1 #H R N"]]]:
    """Yield the queries of each block, its keys, and its part of the table.

    All blocks except the first have R queries, so their distances are those of the last block's table.
    """
    size, length = table.shape[-2:]
    for stop in range((length - 1) % size + 1, length + 1, size):
        start = max(0, stop - size)
        yield slice(start, stop), slice(stop), table[..., size - (stop - start) :, length - stop :]


def _causal(q: Float[Tensor, "B H T W"]) -> Float[Tensor, "1 1 R T"]:
    """Return the table of the causal mask without a bias."""
    length = q.shape[-2]
    rows = min(BLOCK, length)
    working = torch.promote_types(q.dtype, torch.float32)
    table = torch.full((rows, length), -torch.inf, dtype=working)
    return table.triu_(length - rows + 1)[None, None]
