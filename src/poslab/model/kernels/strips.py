"""Softmax attention in plain products, a strip of queries at a time, recomputed in backward.

It supports any bias by distance, gates, sinks, and positions with gaps, in any dtype and on any device.
`pairwise_strips` supports `products` and a bias by both positions or by the query's content. They are for
cases without a fused kernel, and for gradients of a learned bias, which the fused CPU kernel does not have.

Shapes: Q queries of a strip, N distances or keys, W width of queries and keys after the rotation, R rows and
M columns of a table that holds the bias of every strip.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from poslab.model.attention import Site, added_to_logits, softmax_beside

STRIP = 64  # queries per strip
LIVE = 2**19  # scores formed at a time if a batch can be split: 2 MB in float32, which fits into a cache


class Strip(NamedTuple):
    """Consecutive queries and the keys that they can see, as token indices."""

    start: int
    stop: int
    first: int  # the first key; the last key is that of the last query

    @property
    def queries(self) -> slice:
        return slice(self.start, self.stop)

    @property
    def keys(self) -> slice:
        return slice(self.first, self.stop)

    def parts(self, batch: int, heads: int) -> Iterator[slice]:
        """Yield parts of a batch with about LIVE scores each."""
        windows = max(1, LIVE // (heads * (self.stop - self.start) * (self.stop - self.first)))
        for first in range(0, batch, windows):
            yield slice(first, first + windows)


def strips(length: int, window: int | None = None) -> list[Strip]:
    """Return the strips of a sequence; with a window, without keys that none of their queries see."""
    starts = range(0, length, STRIP)
    before = length if window is None else window - 1
    return [Strip(start, min(start + STRIP, length), max(0, start - before)) for start in starts]


class Strips(Function):
    """Causal softmax attention with a bias by distance, gates and sinks, STRIP queries at a time.

    Backward recomputes the weights of each strip from q, k, v, the bias, the gates' sums and the output (Dao
    et al. 2022, algorithm 4, with blocks as wide as the keys, so that no running sum is needed).
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Float[Tensor, "B H T W"],
        k: Float[Tensor, "B H T W"],
        v: Float[Tensor, "B H T K"],
        bias: Float[Tensor, "H N"],
        gate_sums: Float[Tensor, "B H T"] | None,
        sinks: Float[Tensor, "H"] | None,
        positions: Int[Tensor, "T"] | None,
        window: int | None,
        scale: float,
    ) -> Float[Tensor, "B H T K"]:
        """Return the mixed values. All products are formed in the dtype of `bias`.

        `positions` None means 0, 1, 2, ... `bias` is -inf from the distance `window` on; None means nowhere.
        """
        scores = StripScores(q, k, bias, gate_sums, sinks, positions, window, scale)
        values, output = v.to(bias.dtype).contiguous(), torch.empty_like(v)
        for strip, part, added in scores.parts():
            weights = scores.weights(strip, part, added)
            output[part, :, strip.queries] = weights @ values[part, :, strip.keys]
        ctx.save_for_backward(q, k, v, bias, gate_sums, sinks, positions, output)
        ctx.window, ctx.scale = window, scale
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Float[Tensor, "B H T K"]) -> tuple[Tensor | None, ...]:
        q, k, v, bias, gate_sums, sinks, positions, output = ctx.saved_tensors
        scores = StripScores(q, k, bias, gate_sums, sinks, positions, ctx.window, ctx.scale)
        gradients = strip_gradients(scores, v, output, gradient, *ctx.needs_input_grad[3:5])
        return *gradients, None, None, None


class StripScores:
    """Softmax's logits of any strip of queries and the keys that it can see, in the dtype of `bias`."""

    def __init__(
        self,
        q: Float[Tensor, "B H T W"],
        k: Float[Tensor, "B H T W"],
        bias: Float[Tensor, "H N"],
        gate_sums: Float[Tensor, "B H T"] | None,
        sinks: Float[Tensor, "H"] | None,
        positions: Int[Tensor, "T"] | None,
        window: int | None,
        scale: float,
    ) -> None:
        # Contiguous, since a product with a slice of any other tensor copies the slice first.
        self.q = (q.to(bias.dtype) * scale).contiguous()
        self.k = k.to(bias.dtype).contiguous()
        self.bias, self.gate_sums, self.sinks = bias, gate_sums, sinks
        self.positions, self.scale = positions, scale
        self.length, self.window = q.shape[-2], window
        # At consecutive positions each strip's bias is a piece of one table; its own tokens come last.
        self.table = None
        if positions is None:
            rows = min(STRIP, self.length)
            columns = torch.arange(self.length + rows, device=bias.device)
            distance = columns[:rows, None] + self.length - columns
            within = bias[:, distance.clamp(0, bias.shape[1] - 1)]
            self.table = within.masked_fill_(distance < 0, -torch.inf)

    def parts(self) -> Iterator[tuple[Strip, slice, Float[Tensor, "H Q N"]]]:
        """Yield each strip with each part of the batch, and its bias plus mask."""
        for strip in strips(self.length, self.window):
            if self.table is not None:
                added = self.table[self._piece(strip)]
            else:
                distance = self._distances(strip)
                added = self.bias[:, distance.clamp(min=0)].masked_fill_(distance < 0, -torch.inf)
            for part in strip.parts(*self.q.shape[:2]):
                yield strip, part, added

    def weights(self, strip: Strip, part: slice, added: Float[Tensor, "H Q N"]) -> Float[Tensor, "B H Q N"]:
        scores = self.q[part, :, strip.queries] @ self.k[part, :, strip.keys].mT
        if self.gate_sums is not None:
            # Relative to the strip's start in float64, so that near keys keep all digits in float32.
            sums = self.gate_sums[part]
            counted = (sums[..., strip.keys] - sums[..., strip.start, None]).to(scores.dtype)
            scores.add_(counted[..., strip.start - strip.first :, None]).sub_(counted[..., None, :])
        return softmax_beside(self.sinks, scores.add_(added))

    def new_sums(self) -> Float[Tensor, "H R M"]:
        """Return zeros for `add_to`: in the table's shape, or by distance if there is no table."""
        return torch.zeros_like(self.bias if self.table is None else self.table)

    def add_to(self, sums: Tensor, strip: Strip, values: Float[Tensor, "B H Q N"]) -> None:
        summed = values.sum(dim=0)
        if self.table is not None:
            sums[self._piece(strip)] += summed
        else:
            distance = self._distances(strip).clamp(min=0)  # masked scores have no gradient
            sums.index_add_(1, distance.flatten(), summed.flatten(1))

    def by_distance(self, sums: Tensor) -> Float[Tensor, "H N"]:
        """Return the sums of `add_to` by distance."""
        if self.table is None:
            return sums
        result = torch.zeros_like(self.bias)
        result[:, : self.length] = sums_of_diagonals(sums)[:, : self.length]
        return result

    def _piece(self, strip: Strip) -> tuple[slice, slice, slice]:
        assert self.table is not None
        origin = self.table.shape[2] - self.table.shape[1] - strip.start  # the column of token 0
        return slice(None), slice(strip.stop - strip.start), slice(origin + strip.first, origin + strip.stop)

    def _distances(self, strip: Strip) -> Int[Tensor, "Q N"]:
        assert self.positions is not None
        return self.positions[strip.queries, None] - self.positions[strip.keys]


def sums_of_diagonals(values: Float[Tensor, "H R M"]) -> Float[Tensor, "H M-R+1"]:
    """Return the sum of a table's values at each of the distances 0, 1, ..., M - R."""
    heads, rows, columns = values.shape
    # Rows of the copy are longer by `rows`; with a stride one longer, each row starts one column later.
    wide = values.new_zeros(heads, rows, columns + rows)
    wide[..., :columns] = values
    width = columns - rows + 1
    strides = (wide.stride(0), wide.stride(1) + 1, 1)
    return wide.as_strided((heads, rows, width), strides).sum(dim=1).flip(-1)


def strip_gradients(
    scores: StripScores,
    v: Float[Tensor, "B H T K"],
    output: Float[Tensor, "B H T K"],
    gradient: Float[Tensor, "B H T K"],
    bias_needed: bool,
    gates_needed: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of q, k, v, the bias, the gates' sums and the sinks.

    They have the dtype of the scores; the last two have the dtypes of the gates' sums and of the sinks.
    """
    working = scores.bias.dtype
    values, upstream = v.to(working).contiguous(), gradient.to(working).contiguous()
    # Subtracted by softmax's Jacobian: sum_j weight_ij d weight_ij = <d output_i, output_i>.
    shared = (upstream * output.to(working)).sum(dim=-1, keepdim=True)
    q_gradient = torch.empty_like(scores.q)
    k_gradient, v_gradient = torch.zeros_like(scores.k), torch.zeros_like(values)
    bias_sums = scores.new_sums() if bias_needed else None
    gates_gradient = None
    if gates_needed:
        assert scores.gate_sums is not None
        gates_gradient = torch.zeros_like(scores.gate_sums)
    sinks_gradient = None if scores.sinks is None else torch.zeros_like(scores.sinks)
    for strip, part, added in scores.parts():
        rows, keys = (part, slice(None), strip.queries), (part, slice(None), strip.keys)
        weights = scores.weights(strip, part, added)
        if sinks_gradient is not None:  # a sink's weight is 1 less the sum of the others, and its value 0
            missing = 1 - weights.sum(dim=-1, keepdim=True)
            sinks_gradient -= (missing * shared[rows]).sum(dim=(0, 2, 3)).to(sinks_gradient.dtype)
        v_gradient[keys] += weights.mT @ upstream[rows]
        score_gradient = (upstream[rows] @ values[keys].mT).sub_(shared[rows]).mul_(weights)
        if bias_sums is not None:
            scores.add_to(bias_sums, strip, score_gradient)
        if gates_gradient is not None:
            gates_gradient[keys] -= score_gradient.sum(dim=-2)
            # Without sinks this is only rounding, since softmax ignores a shift of a row. In half precision
            # it cancels the rounding of the line above, which the sums over tokens would accumulate.
            gates_gradient[rows] += score_gradient.sum(dim=-1)
        q_gradient[rows] = score_gradient @ scores.k[keys]
        k_gradient[keys] += score_gradient.mT @ scores.q[rows]
    bias_gradient = None if bias_sums is None else scores.by_distance(bias_sums)
    q_gradient.mul_(scores.scale)
    return q_gradient, k_gradient, v_gradient, bias_gradient, gates_gradient, sinks_gradient


def pairwise_strips(
    q: Float[Tensor, "B H T W"],
    k: Float[Tensor, "B H T W"],
    v: Float[Tensor, "B H T K"],
    site: Site,
    scale: float,
) -> Float[Tensor, "B H T K"]:
    """Attend with `products`, or a bias by both positions or by content, in strips recomputed in backward."""
    working = torch.promote_types(q.dtype, torch.float32)

    def mixed(strip: Strip, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        transitions = None if site.transitions is None else site.transitions[..., strip.keys, :]
        first = strip.start - strip.first
        scores = site.scheme.products(q.to(working) * scale, k.to(working), transitions, first)
        scores = scores + added_to_logits(site, working, strip.queries, strip.keys)
        return (softmax_beside(site.sinks, scores) @ v.to(working)).to(v.dtype)

    parts = []
    for strip in strips(q.shape[-2], site.scheme.geometry.window):
        inputs = strip, q[..., strip.queries, :], k[..., strip.keys, :], v[..., strip.keys, :]
        parts.append(checkpoint(mixed, *inputs, use_reentrant=False, preserve_rng_state=False))
    return torch.cat(parts, dim=-2)
