"""Softmax attention with a bias by distance, by PyTorch's fused kernel for CPUs, at consecutive positions.

The kernel adds a mask to the scores, but reading a matrix of biases takes longer than forming the scores.
Each row of that matrix is the next one shifted by one token: with the queries in reverse order, all rows are
views of one vector per head, two sequences long, which serves as the mask. It is -inf ahead of the query, so
it is also the causal mask. Every distance has its own exact bias at any length.

Blocks of queries use the keys up to their last query, except those too far to count: if

    bias(t) - bias(0) < -(2 |q||k| / sqrt(K) + log(T / eps) + 2)

a key t tokens back weighs less than eps / (7 T) times the query's own key, where eps is the distance from 1
to the next number. All such keys of a query together weigh less than the rounding of its sum. They get -inf:
under ALiBi they are most of a long sequence, and subnormal weights would slow a processor down several times.

Short sequences use cpu_causal.py, with a table of that vector's last rows in forward order.

Shapes: N distances or keys, M length of a head's vector, W width of queries, keys and values.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import log
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function

from poslab.model.kernels import cpu_causal
from poslab.model.kernels.cpu_causal import (
    attend_in_blocks,
    backward_kernel,
    forward_kernel,
    gradients_in_blocks,
)
from poslab.model.kernels.strips import StripScores, strip_gradients

SHORT = 512  # tokens; up to here blocks of one table (cpu_causal.py), since few keys are too far to count
BLOCK = 256  # queries per call in forward, keys per call in backward
WORTH = 64  # nats below bias(0); if no bias is that low, all keys count, and norms are not computed
STEP = 64  # the first key that counts is rounded down to a multiple of this


class Sliding(Function):
    """Causal softmax attention with a bias by distance, which may be learned."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Float[Tensor, "B H T W"],
        k: Float[Tensor, "B H T W"],
        v: Float[Tensor, "B H T W"],
        bias: Float[Tensor, "H N"],
        scale: float,
    ) -> Float[Tensor, "B H T W"]:
        """`bias` has the dtype of q, or float32."""
        length = q.shape[-2]
        reach = _reach(q, k, bias[:, :length], scale)
        vector = _vector(bias[:, :length], reach)
        if length <= SHORT:
            output, logsumexp = attend_in_blocks(q, k, v, _table(vector), scale)
        else:
            output, logsumexp = torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=bias.dtype)
            backwards = q.flip(-2)
            for start, stop in _blocks(length):
                for heads, first in _groups([max(0, start - far) // STEP * STEP for far in reach]):
                    mask = _mask(vector[heads], (start, stop), (first, stop))
                    rows = slice(length - stop, length - start)
                    mixed, sums = forward_kernel(
                        backwards[:, heads, rows],
                        k[:, heads, first:stop],
                        v[:, heads, first:stop],
                        0.0,
                        False,
                        attn_mask=mask,
                        scale=scale,
                    )
                    output[:, heads, start:stop] = mixed.flip(-2)
                    logsumexp[:, heads, start:stop] = sums.flip(-1)
        ctx.save_for_backward(q, k, v, bias, output, logsumexp)
        ctx.reach, ctx.scale = reach, scale
        return output

    @staticmethod
    def backward(
        ctx: Any, gradient: Float[Tensor, "B H T W"]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, None]:
        q, k, v, bias, output, logsumexp = ctx.saved_tensors
        if ctx.needs_input_grad[3]:  # the bias's, which the fused kernel does not compute
            scores = StripScores(q, k, bias, None, None, None, max(ctx.reach) + 1, ctx.scale)
            d_q, d_k, d_v, d_bias, *_ = strip_gradients(scores, v, output, gradient, True, False)
            return d_q, d_k, d_v, d_bias, None
        length = q.shape[-2]
        vector = _vector(bias[:, :length], ctx.reach)
        inputs = (gradient, q, k, v, output, logsumexp)
        if length <= SHORT:
            gradients = gradients_in_blocks(*inputs, _table(vector), ctx.scale)
        else:
            gradients = _blocks_backward(*inputs, vector, ctx.reach, ctx.scale)
        return *gradients, None, None


def _blocks_backward(
    gradient: Float[Tensor, "B H T W"],
    q: Float[Tensor, "B H T W"],
    k: Float[Tensor, "B H T W"],
    v: Float[Tensor, "B H T W"],
    output: Float[Tensor, "B H T W"],
    logsumexp: Float[Tensor, "B H T"],
    vector: Float[Tensor, "H M"],
    reach: Sequence[int],
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q, k and v, by blocks of keys with the queries for which they count."""
    length = q.shape[-2]
    gradient, q, output = (x.flip(-2) for x in (gradient, q, output))
    logsumexp = logsumexp.flip(-1)
    q_gradient = torch.zeros_like(q, dtype=torch.promote_types(q.dtype, torch.float32))
    k_gradient, v_gradient = torch.empty_like(k), torch.empty_like(v)
    for first, last in _blocks(length):
        for heads, stop in _groups([min(length, last + far) for far in reach]):
            rows = slice(length - stop, length - first)
            mask = _mask(vector[heads], (first, stop), (first, last))
            d_q, d_k, d_v = backward_kernel(
                gradient[:, heads, rows],
                q[:, heads, rows],
                k[:, heads, first:last],
                v[:, heads, first:last],
                output[:, heads, rows],
                logsumexp[:, heads, rows],
                0.0,
                False,
                attn_mask=mask,
                scale=scale,
            )
            q_gradient[:, heads, rows] += d_q
            k_gradient[:, heads, first:last] = d_k
            v_gradient[:, heads, first:last] = d_v
    return q_gradient.flip(-2).to(q.dtype), k_gradient, v_gradient


def _vector(bias: Float[Tensor, "H N"], reach: Sequence[int]) -> Float[Tensor, "H M"]:
    """Return the bias from the longest distance to 0, with -inf for keys out of reach and tokens ahead."""
    vector = torch.cat([bias.flip(-1), bias.new_full((len(bias), bias.shape[1] - 1), -torch.inf)], dim=1)
    for head, distance in enumerate(reach):
        vector[head, : bias.shape[1] - 1 - distance] = -torch.inf
    return vector


def _mask(
    vector: Float[Tensor, "H M"], queries: tuple[int, int], keys: tuple[int, int]
) -> Float[Tensor, "1 H Q N"]:
    """Return the mask of these queries, in reverse order, on these keys, as a view."""
    length = (vector.shape[1] + 1) // 2
    size = (1, len(vector), queries[1] - queries[0], keys[1] - keys[0])
    begin = vector.storage_offset() + length - queries[1] + keys[0]
    return vector.as_strided(size, (0, vector.stride(0), 1, 1), begin)


def _table(vector: Float[Tensor, "H M"]) -> Float[Tensor, "1 H R T"]:
    """Return the mask of the last queries, in forward order, for cpu_causal.py."""
    length = (vector.shape[1] + 1) // 2
    return _mask(vector, (max(0, length - cpu_causal.BLOCK), length), (0, length)).flip(-2)


def _blocks(length: int) -> Iterator[tuple[int, int]]:
    for start in range(0, length, BLOCK):
        yield start, min(start + BLOCK, length)


def _groups(ends: Sequence[int]) -> Iterator[tuple[slice, int]]:
    """Yield a slice for each run of neighbouring heads with the same value in `ends`, and that value."""
    first = 0
    for end, heads in groupby(ends):
        stop = first + len(list(heads))
        yield slice(first, stop), end
        first = stop


def _reach(
    q: Float[Tensor, "B H T W"], k: Float[Tensor, "B H T W"], bias: Float[Tensor, "H N"], scale: float
) -> list[int]:
    """Return for each head the largest distance at which a key counts (see above)."""
    length = q.shape[-2]
    if (bias[:, :1] - bias).amax() < WORTH:
        return [length - 1] * len(bias)
    norms = [x.to(bias.dtype).square().sum(dim=-1).amax(dim=(0, 2)).sqrt() for x in (q, k)]
    largest = scale * norms[0] * norms[1]
    least = bias[:, 0] - 2 * largest - (log(length / torch.finfo(bias.dtype).eps) + 2)
    # Not `bias >= least`: if a norm is NaN, all keys count.
    counts = ~(bias < least[:, None])
    distance = torch.arange(length)
    return torch.where(counts, distance, 0).amax(dim=1).tolist()
