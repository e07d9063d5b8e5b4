"""Causal kernel attention in O(T) time and memory, by chunks of queries, forward and backward.

    out_i = sum_{j<=i} w_ij <q_i, k_j> v_j / sum_{j<=i} w_ij <q_i, k_j>

A chunk of queries has exact weights on its own keys and on the `lag` keys before them. All earlier keys have
geometric weights: once they are that far, they enter one state, their decayed sum. Backward runs from the
last chunk to the first. It recomputes the near weights of each chunk and reads the states that forward saved.
It is written by hand, since autograd would save every chunk's matrices, and would give each slice of the keys
a gradient as long as the sequence.

Shapes: R = B H rows, W width of queries and keys, U that of the plain ones, V of values, N chunks.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function


class PairWeights(NamedTuple):
    """log w_ij = log_near + F_i - F_j for a near key, at_horizon + D_i - D_j + F_i - F_j for a far one.

    If the bias does not grow, no weight is above 1. In `log_near`, N is 1 if all chunks have the same
    weights, and H is 1 if all heads do.
    """

    log_near: Float[Tensor, "N H chunk lag+chunk"]  # -inf for keys after the query
    at_horizon: Float[Tensor, "H"] | None  # float64; None means 0, as for `decay`
    decay: Float[Tensor, "H T"] | None  # D = log_decay p, float64
    gate_sums: Float[Tensor, "B H T"] | None  # F, float64: the gates' logarithms summed up to each token
    lag: int  # tokens


@dataclass(frozen=True)
class _Chunk:
    """A chunk of queries and its keys, as slices of the sequence."""

    number: int
    queries: slice
    near: slice  # the keys with exact weights; earlier ones are in the state
    leaving: slice  # the keys that enter the state after this chunk; none after the last


class _Weights:
    """PairWeights as factors, chunk by chunk."""

    def __init__(self, shape: torch.Size, logarithms: PairWeights) -> None:
        """`shape` begins with B, H and T."""
        self.batch, self.heads, self.length = shape[:3]
        self.logarithms, self.lag = logarithms, logarithms.lag
        self.size = logarithms.log_near.shape[-2]
        self.exact = logarithms.log_near.exp() if logarithms.gate_sums is None else None
        # Factors of each query, each key and the state after each chunk: (R, T or N, 1); None means 1
        self.of_queries = self.of_keys = self.of_states = None
        _, at_horizon, decay, gate_sums, lag = logarithms
        if decay is None and gate_sums is None:
            if at_horizon is not None:
                self.of_queries = self._by_row(at_horizon[None, :, None]).expand(-1, self.length, -1)
            return
        sums = 0 if decay is None else decay[None]
        sums = sums if gate_sums is None else sums + gate_sums
        assert isinstance(sums, Tensor)
        # Relative to the last far key before a chunk (`before`), or before the next one (`after`): if no
        # weight grows, sums_i <= before and after <= sums_j, so no factor is above 1.
        starts = torch.arange(0, self.length, self.size, device=sums.device)
        before = sums[..., (starts - lag - 1).clamp(min=0)]
        after = sums[..., (starts + self.size - lag - 1).clamp(0, self.length - 1)]
        number = torch.arange(self.length + lag, device=sums.device) // self.size
        queries = sums - before[..., number[: self.length]]
        self.of_queries = self._by_row(queries if at_horizon is None else queries + at_horizon[:, None])
        self.of_keys = self._by_row(after[..., number[lag:].clamp(max=len(starts) - 1)] - sums)
        self.of_states = self._by_row(after - before)

    def _by_row(self, logarithm: Float[Tensor, "B H X"]) -> Float[Tensor, "R X 1"]:
        """Return the exponentials for all rows; B or H may be 1."""
        factor = logarithm.exp().to(self.logarithms.log_near.dtype).expand(self.batch, self.heads, -1)
        return factor.reshape(self.batch * self.heads, -1, 1)

    def chunks(self) -> list[_Chunk]:
        chunks = []
        for number, start in enumerate(range(0, self.length, self.size)):
            stop = min(start + self.size, self.length)
            near = max(0, start - self.lag)
            leaving = max(0, stop - self.lag) if stop < self.length else near
            chunks.append(_Chunk(number, slice(start, stop), slice(near, stop), slice(near, leaving)))
        return chunks

    def near(self, chunk: _Chunk) -> Float[Tensor, "B H queries keys"]:
        """Return the weights of a chunk's queries on the near keys. B or H is 1 if its entries are equal."""
        if self.exact is not None:
            return self.part(self.exact, chunk)[None]
        log_near, gate_sums = self.part(self.logarithms.log_near, chunk), self.logarithms.gate_sums
        assert gate_sums is not None
        # Relative to the chunk's first token in float64, so that near keys keep all digits in float32.
        origin = gate_sums[..., chunk.queries.start, None]
        row, column = (
            (gate_sums[..., tokens] - origin).to(log_near.dtype) for tokens in (chunk.queries, chunk.near)
        )
        return (log_near + (row[..., :, None] - column[..., None, :])).exp()

    def part(
        self, near: Float[Tensor, "N H chunk lag+chunk"], chunk: _Chunk
    ) -> Float[Tensor, "H queries keys"]:
        """Return the part of `log_near`, or of a tensor of its shape, for a chunk."""
        rows, keys = chunk.queries, chunk.near
        first = rows.start - self.lag  # the key of the first column
        return near[chunk.number if len(near) > 1 else 0][
            :, : rows.stop - rows.start, keys.start - first : keys.stop - first
        ]

    def multiply(
        self, scores: Float[Tensor, "R queries keys"], near: Float[Tensor, "B H queries keys"]
    ) -> Float[Tensor, "R queries keys"]:
        """Multiply `scores` by near weights, in place."""
        scores.view(self.batch, self.heads, *scores.shape[1:]).mul_(near)
        return scores

    def every_row(self, near: Float[Tensor, "B H queries keys"]) -> Float[Tensor, "R queries keys"]:
        """Expand near weights to all rows, without a copy if all rows are equal."""
        rows = self.batch * self.heads
        if near.shape[:2] == (1, 1):
            return near[0].expand(rows, -1, -1)
        return near.expand(self.batch, self.heads, -1, -1).reshape(rows, *near.shape[2:])


class ChunkedAttention(Function):
    """The quotient above and its denominator, differentiable with respect to all tensors.

    With `plain_q` and `plain_k`, the denominator is <plain_q_i, sum_j w_ij plain_k_j>, which needs no
    products of single queries and keys. With `half`, the factors of the large products are rounded to that
    dtype, and their products are summed in float32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Float[Tensor, "B H T W"],
        k: Float[Tensor, "B H T W"],
        v: Float[Tensor, "B H T V"],
        plain_q: Float[Tensor, "B H T U"] | None,
        plain_k: Float[Tensor, "B H T U"] | None,
        log_near: Float[Tensor, "N H chunk lag+chunk"],
        at_horizon: Float[Tensor, "H"] | None,
        decay: Float[Tensor, "H T"] | None,
        gate_sums: Float[Tensor, "B H T"] | None,
        lag: int,
        half: torch.dtype | None,
    ) -> tuple[Float[Tensor, "B H T V"], Float[Tensor, "B H T 1"]]:
        shape = v.shape
        weights = _Weights(shape, PairWeights(log_near, at_horizon, decay, gate_sums, lag))
        q, k, v = (x.reshape(-1, *x.shape[2:]) for x in (q, k, v))
        weighted_k = None
        summed_k = k  # the keys of the denominator
        if plain_q is not None and plain_k is not None:
            plain_q, summed_k = (x.reshape(-1, *x.shape[2:]) for x in (plain_q, plain_k))
            weighted_k = torch.empty_like(plain_q)  # sum_j w_ij plain_k_j
        output, denominator = torch.empty_like(v), v.new_empty(*v.shape[:2], 1)
        state = v.new_zeros(len(v), q.shape[2], v.shape[2])  # the decayed sum of k_j v_j over the far keys
        total = torch.zeros_like(summed_k[:, :1])  # the decayed sum of the denominator's keys
        states = []
        for chunk in weights.chunks():
            rows, near, leaving = chunk.queries, chunk.near, chunk.leaving
            queries, weight, has_far = q[:, rows], weights.near(chunk), near.start > 0
            scores = weights.multiply(_product(queries, k[:, near].mT, half), weight)
            numerator = _product(scores, v[:, near], half)
            if has_far:
                numerator += _times(_product(queries, state, half), weights.of_queries, rows)
            if weighted_k is None or plain_q is None:
                below = scores.sum(dim=-1, keepdim=True)
                if has_far:
                    below += _times(queries @ total.mT, weights.of_queries, rows)
            else:
                weighted = _product(weights.every_row(weight), summed_k[:, near], half)
                if has_far:
                    weighted += _times(total, weights.of_queries, rows)
                weighted_k[:, rows] = weighted
                below = (plain_q[:, rows] * weighted).sum(dim=-1, keepdim=True)
            denominator[:, rows] = below
            output[:, rows] = numerator.div_(below)
            states += [state, total]
            if leaving.stop > leaving.start:
                index = slice(chunk.number, chunk.number + 1)
                keys = _times(k[:, leaving], weights.of_keys, leaving)
                state = _add_product(_times(state, weights.of_states, index), keys.mT, v[:, leaving], half)
                keys = keys if weighted_k is None else _times(summed_k[:, leaving], weights.of_keys, leaving)
                total = _times(total, weights.of_states, index) + keys.sum(dim=1, keepdim=True)
        # Saved by this call, so that everything is freed after backward, and saved-tensor hooks see it.
        ctx.save_for_backward(
            q, k, v, plain_q, summed_k, *weights.logarithms[:4], output, denominator, weighted_k, *states
        )
        ctx.lag, ctx.half = lag, half
        ctx.set_materialize_grads(False)
        return output.reshape(shape), denominator.reshape(*shape[:3], 1)

    @staticmethod
    def backward(
        ctx: Any, gradient: Float[Tensor, "B H T V"], of_denominator: Float[Tensor, "B H T 1"] | None
    ) -> tuple[Tensor | None, ...]:
        gradients = _Gradients(ctx, gradient, of_denominator)
        for chunk in reversed(gradients.weights.chunks()):
            if chunk.leaving.stop > chunk.leaving.start:
                gradients.through_leaving_keys(chunk)
            gradients.through_near_keys(chunk)
        return *gradients.of_inputs(gradient.shape), None, None


class _Gradients:
    """The gradients of all inputs, accumulated from the last chunk to the first.

    `d_x` is the gradient of x. `d_state` and `d_total` are for the values before the last processed chunk.
    """

    def __init__(
        self, ctx: Any, gradient: Float[Tensor, "B H T V"], of_denominator: Float[Tensor, "B H T 1"] | None
    ) -> None:
        saved, needed = ctx.saved_tensors, ctx.needs_input_grad
        self.q, self.k, self.v, self.plain_q, self.summed_k = saved[:5]
        self.output, self.denominator, self.weighted_k, *self.states = saved[9:]
        self.weights = _Weights(gradient.shape, PairWeights(saved[5], saved[6], saved[7], saved[8], ctx.lag))
        self.half = ctx.half
        self.gradient = gradient.reshape(self.output.shape)
        self.of_denominator = None if of_denominator is None else of_denominator.flatten(0, 1)
        self.d_q = torch.empty_like(self.q)  # every chunk writes its own rows
        self.d_k, self.d_v, self.d_state, self.d_total = (
            torch.zeros_like(x) for x in (self.k, self.v, *self.states[:2])
        )
        separate = self.weighted_k is not None
        self.d_plain_q = torch.empty_like(self.plain_q) if separate else None
        self.d_plain_k = torch.zeros_like(self.summed_k) if separate else None
        # d log w of the near pairs, its sum over far keys for each query, and over far queries for each key
        self.d_near = torch.zeros_like(saved[5]) if needed[5] else None
        self.by_query = torch.zeros_like(self.denominator) if needed[6] or needed[7] else None
        self.by_key = torch.zeros_like(self.denominator) if needed[7] else None
        self.gates = needed[8]

    def through_leaving_keys(self, chunk: _Chunk) -> None:
        """Propagate the gradient of the state after a chunk to its new keys and to the state before."""
        leaving, index = chunk.leaving, slice(chunk.number, chunk.number + 1)
        factor = self.weights.of_keys
        self.d_v[:, leaving] += _product(_times(self.k[:, leaving], factor, leaving), self.d_state, self.half)
        d_k = _product(self.v[:, leaving], self.d_state.mT, self.half)
        if self.d_plain_k is None:
            d_k = _times(d_k + self.d_total, factor, leaving)
        else:
            d_k = _times(d_k, factor, leaving)
            d_plain_k = _times(self.d_total, factor, leaving)
            self.d_plain_k[:, leaving] += d_plain_k
            _add_scalar_products(self.by_key, leaving, d_plain_k, self.summed_k[:, leaving])
        self.d_k[:, leaving] += d_k
        _add_scalar_products(self.by_key, leaving, d_k, self.k[:, leaving])
        self.d_state = _times(self.d_state, self.weights.of_states, index)
        self.d_total = _times(self.d_total, self.weights.of_states, index)

    def through_near_keys(self, chunk: _Chunk) -> None:
        """Propagate the gradient of a chunk's output to its queries, near keys and the far keys' state."""
        rows, near, half = chunk.queries, chunk.near, self.half
        queries, keys, values = self.q[:, rows], self.k[:, near], self.v[:, near]
        weight = self.weights.near(chunk)
        d_top = self.gradient[:, rows] / self.denominator[:, rows]
        d_below = (d_top * self.output[:, rows]).sum(dim=-1, keepdim=True).neg_()
        if self.of_denominator is not None:
            d_below += self.of_denominator[:, rows]
        scores = self.weights.multiply(_product(queries, keys.mT, half), weight)
        d_weighted_k = None
        if self.d_plain_q is None or self.d_plain_k is None:
            d_scores = _add_product(d_below, d_top, values.mT, half)
        else:
            d_scores = _product(d_top, values.mT, half)
            d_weighted_k = d_below * self.plain_q[:, rows]
            self.d_plain_q[:, rows] = d_below * self.weighted_k[:, rows]
            self.d_plain_k[:, near] += _product(self.weights.every_row(weight).mT, d_weighted_k, half)
            if self.d_near is not None:
                d_weight = _product(d_weighted_k, self.summed_k[:, near].mT, half)
                self._add_near(chunk, d_weight, self.weights.every_row(weight))
        self.d_v[:, near] += _product(scores.mT, d_top, half)
        self._add_near(chunk, d_scores, scores)
        d_scores = self.weights.multiply(d_scores, weight)
        self.d_k[:, near] += _product(d_scores.mT, queries, half)
        d_queries = _product(d_scores, keys, half)
        if near.start > 0:
            d_queries += self._through_state(chunk, d_top, d_below, d_weighted_k)
        self.d_q[:, rows] = d_queries

    def _through_state(
        self,
        chunk: _Chunk,
        d_top: Float[Tensor, "R queries V"],
        d_below: Float[Tensor, "R queries 1"],
        d_weighted_k: Float[Tensor, "R queries U"] | None,
    ) -> Float[Tensor, "R queries W"]:
        """Return the part of the queries' gradient from the far keys."""
        rows, factor = chunk.queries, self.weights.of_queries
        state, total = self.states[2 * chunk.number : 2 * chunk.number + 2]
        queries, d_top = self.q[:, rows], _times(d_top, factor, rows)
        d_queries = _product(d_top, state.mT, self.half)
        self.d_state = _add_product(self.d_state, queries.mT, d_top, self.half)
        if d_weighted_k is None:
            d_below = _times(d_below, factor, rows)
            d_queries.addcmul_(d_below, total)
            self.d_total = self.d_total + d_below.mT @ queries
        else:
            d_weighted_k = _times(d_weighted_k, factor, rows)
            self.d_total = self.d_total + d_weighted_k.sum(dim=1, keepdim=True)
            _add_scalar_products(self.by_query, rows, d_weighted_k, total)
        _add_scalar_products(self.by_query, rows, d_queries, queries)
        return d_queries

    def _add_near(
        self,
        chunk: _Chunk,
        d_weight: Float[Tensor, "R queries keys"],
        weight: Float[Tensor, "R queries keys"],
    ) -> None:
        """Add the gradient of a chunk's near log weights: w d_w, or weighted scores times their gradient."""
        if self.d_near is None:
            return
        part = self.weights.part(self.d_near, chunk)
        for first in range(0, len(weight), self.weights.heads):  # avoids a product of the batch's size
            rows = slice(first, first + self.weights.heads)
            part.addcmul_(d_weight[rows], weight[rows])

    def of_inputs(self, shape: torch.Size) -> list[Tensor | None]:
        """Return the gradients in the order of ChunkedAttention's inputs; `shape` begins with B, H and T."""
        d_horizon = d_decay = d_gates = None
        if self.by_query is not None:
            d_decay = self.by_query.reshape(shape[:3]).double().sum(dim=0)
            d_horizon = d_decay.sum(dim=-1)
        if self.by_key is not None and d_decay is not None:
            d_decay = d_decay - self.by_key.reshape(shape[:3]).double().sum(dim=0)
        else:
            d_decay = None
        if self.gates:
            # The logarithm of w_ij contains F_i - F_j, and <d_q_i, q_i> is the sum of d log w_ij over j.
            d_gates = (self.d_q * self.q).sum(dim=-1) - (self.d_k * self.k).sum(dim=-1)
            if self.d_plain_q is not None and self.d_plain_k is not None:
                d_gates += (self.d_plain_q * self.plain_q).sum(dim=-1)
                d_gates -= (self.d_plain_k * self.summed_k).sum(dim=-1)
            d_gates = d_gates.reshape(shape[:3]).double()
        rows = [
            None if x is None else x.reshape(*shape[:2], *x.shape[1:])
            for x in (self.d_q, self.d_k, self.d_v, self.d_plain_q, self.d_plain_k)
        ]
        return [*rows, self.d_near, d_horizon, d_decay, d_gates]


def _product(
    left: Float[Tensor, "R X Y"], right: Float[Tensor, "R Y Z"], half: torch.dtype | None
) -> Float[Tensor, "R X Z"]:
    """Return the matrix product; with `half`, that of factors rounded to it, summed in float32."""
    if half is None:
        return torch.bmm(left, right)
    left, right = left.to(half), right.to(half)
    if left.is_cuda:
        return torch.bmm(left, right, out_dtype=torch.float32)
    return torch.bmm(left.float(), right.float())  # float32 holds the products exactly


def _add_product(
    x: Float[Tensor, "R X Z"],
    left: Float[Tensor, "R X Y"],
    right: Float[Tensor, "R Y Z"],
    half: torch.dtype | None,
) -> Float[Tensor, "R X Z"]:
    """Return x plus the product, as a new tensor; x may be broadcast."""
    return torch.baddbmm(x, left, right) if half is None else x + _product(left, right, half)


def _times(x: Float[Tensor, "R N X"], factor: Float[Tensor, "R T 1"] | None, tokens: slice) -> Tensor:
    return x if factor is None else x * factor[:, tokens]


def _add_scalar_products(
    sums: Float[Tensor, "R T 1"] | None, tokens: slice, left: Float[Tensor, "R N X"], right: Tensor
) -> None:
    """Add <left, right> of each token to `sums`, unless that is None."""
    if sums is not None:
        sums[:, tokens] += (left * right).sum(dim=-1, keepdim=True)
