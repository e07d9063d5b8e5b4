"""Causal linear attention (Katharopoulos et al. 2020, arXiv 2006.16236), phi(x) = elu(x) + 1.

    out_i = sum_{j<=i} w_ij <phi(q_i), phi(k_j)> v_j / sum_{j<=i} w_ij <phi(q_i), phi(k_j)>

with w_ij = exp(bias(p_i - p_j)) prod_{j<l<=i} f_l: a bias and gates multiply the kernel where softmax adds
them to its logarithm. A rotation turns phi(q) and phi(k), in the numerator alone (RoFormer, equation 19): the
rotated product can be negative, and as a denominator it could vanish. All of it in float32 at least.

Where the bias is geometric past a horizon M (a scheme's `tail`), both sums take O(T) time and memory: exact
weights for the keys less than about M back, and one decayed sum over all keys before those. A bias without
such a tail is refused when the model is built.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import Function

from poslab.config.schema import Options
from poslab.model.attention import Attention, PairError, Site, added_to_logits, cumulative_log_gates
from poslab.model.positions import Geometry, Scheme

CHUNK = {"cpu": 64, "cuda": 128}  # queries whose products are formed at a time; no effect but on rounding


class Linear(Attention):
    """Linear attention of any positive feature map: subclasses such as Performer override `feature_map`."""

    form = "O(L)"
    chunk: int | None = None  # None: as the device has it in CHUNK

    def __init__(self, options: Options, geometry: Geometry, scheme: Scheme) -> None:
        super().__init__(options, geometry, scheme)
        tail = scheme.tail()
        if tail is None:
            raise PairError(
                f"linear attention has no O(L) form under pos.scheme={scheme.name}, whose bias never becomes "
                "geometric: choose attention=flash or softmax, or a scheme whose bias does (alibi, t5)"
            )
        log_decay = tail.log_decay
        # Looked at once, since on CUDA a look waits for the device.
        self.decays = log_decay.requires_grad or log_decay.is_meta or bool(log_decay.any())

    def feature_map(self, x: Float[Tensor, "B H T K"], queries: bool) -> Float[Tensor, "B H T W"]:
        """phi of queries or of keys, positive."""
        features: Tensor = EluPlusOne.apply(x)  # type: ignore[no-untyped-call]
        return features

    def attend(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        v: Float[Tensor, "B H T K"],
        site: Site,
    ) -> Float[Tensor, "B H T K"]:
        self.kernel = "linear, chunked"
        chunk = min(self.chunk or CHUNK[q.device.type], q.shape[-2])
        half = q.dtype if q.is_cuda and q.dtype == torch.bfloat16 else None
        q, k, turned_q, turned_k = self._features(q, k, site)
        plain = (None, None) if turned_q is q and turned_k is k else (q, k)
        weights = pair_weights(site, q, chunk, self.decays)
        mixed: Tensor = ChunkedAttention.apply(  # type: ignore[no-untyped-call]
            turned_q,
            turned_k,
            v.to(q.dtype),
            *plain,
            weights.log_near,
            weights.at_horizon,
            weights.decay,
            weights.gate_sums,
            weights.lag,
            half,
        )
        return mixed.to(v.dtype)

    def weights(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B H T K"], site: Site
    ) -> Float[Tensor, "B H T T"]:
        """Under a rotation some weights are negative, and those of a query need not sum to 1."""
        q, k, turned_q, turned_k = self._features(q, k, site)
        pair = added_to_logits(site, q.dtype).exp()
        denominator = (q @ k.mT * pair).sum(dim=-1, keepdim=True)
        weights: Float[Tensor, "B H T T"] = turned_q @ turned_k.mT * pair / denominator
        return weights

    def _features(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """phi(q), phi(k), and both rotated."""
        working = torch.promote_types(q.dtype, torch.float32)
        q, k = self.feature_map(q.to(working), True), self.feature_map(k.to(working), False)
        scheme, positions = site.scheme, site.positions
        return q, k, scheme.rotate_queries(q, positions), scheme.rotate_keys(k, positions)


class EluPlusOne(Function):
    """exp(min(x, 0)) + max(x, 0): elu(x) + 1 as a sum would be rounded to 0 from x = -17 on."""

    @staticmethod
    def forward(ctx: Any, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        features = x.clamp(max=0).exp_().add_(x.clamp(min=0))
        ctx.save_for_backward(features)
        return features

    @staticmethod
    def backward(ctx: Any, gradient: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        (features,) = ctx.saved_tensors
        slope: Tensor = features.clamp(max=1)  # exp(x) up to x = 0, then 1
        return slope.mul_(gradient)


@dataclass(frozen=True)
class PairWeights:
    """log w_ij = log_near + F_i - F_j of the `lag` keys before a chunk of queries and of the chunk's own, and

    at_horizon + D_i - D_j + F_i - F_j of all keys before these. Where the bias does not grow no weight is
    above 1. Shapes: N chunks, or 1 where all of them have the same weights; H is 1 where all heads have.
    """

    log_near: Float[Tensor, "N H chunk lag+chunk"]  # -inf for keys after the query
    at_horizon: Float[Tensor, "H"] | None  # float64; None, like decay: 0
    decay: Float[Tensor, "H T"] | None  # D = log_decay p, float64
    gate_sums: Float[Tensor, "B H T"] | None  # F, float64: the gates' logarithms summed up to each token
    lag: int  # tokens


def pair_weights(site: Site, like: Float[Tensor, "B H T W"], chunk: int, decays: bool) -> PairWeights:
    """The weights w at a site, in the dtype and on the device of `like`; `decays`: not all log_decay are 0."""
    scheme, positions = site.scheme, site.positions
    tail = scheme.tail()
    assert tail is not None  # Linear's constructor refuses such a scheme
    lag = max(tail.horizon - 1, 0)
    tokens = torch.arange(-lag, chunk, device=like.device)
    reach = max(lag + chunk, tail.horizon + 1)
    if scheme.geometry.consecutive:
        distance = (tokens[lag:, None] - tokens)[None]
    else:  # positions that are drawn can lie anywhere below L; those outside the sequence are not read
        starts = torch.arange(0, len(positions), chunk, device=like.device)
        near = positions[(starts[:, None] + tokens).clamp(0, len(positions) - 1)]
        distance = near[:, lag:, None] - near[:, None, :]
        reach = max(reach, scheme.geometry.context_length)
    bias = scheme.bias(torch.arange(reach, device=like.device))
    at_horizon = decay = None
    if bias is None:
        by_distance = like.new_zeros(1, reach)
    else:
        shifted = bias - bias.amax(dim=-1, keepdim=True).detach()  # a constant a head cancels in the quotient
        by_distance = shifted.to(like.dtype)
        log_decay = tail.log_decay.to(like.device, torch.float64)
        at_horizon = shifted[:, tail.horizon].double() - tail.horizon * log_decay
        decay = log_decay[:, None] * positions if decays else None
    log_near = by_distance[:, distance.clamp(min=0)].masked_fill(distance < 0, -torch.inf)
    gate_sums = None if site.log_gates is None else cumulative_log_gates(site.log_gates)
    return PairWeights(log_near.transpose(0, 1), at_horizon, decay, gate_sums, lag)


@dataclass(frozen=True)
class _Chunk:
    """A chunk of queries and the keys that it has to do with, as tokens of the sequence."""

    number: int
    queries: slice
    near: slice  # the keys that the queries meet by exact weights; those before by one decayed sum
    leaving: slice  # the keys that the next chunk finds in that sum


class _Factors:
    """The weights of PairWeights as factors, chunk by chunk. Shapes: R = B H rows."""

    def __init__(
        self,
        shape: tuple[int, ...],
        log_near: Float[Tensor, "N H chunk lag+chunk"],
        at_horizon: Float[Tensor, "H"] | None,
        decay: Float[Tensor, "H T"] | None,
        gate_sums: Float[Tensor, "B H T"] | None,
        lag: int,
    ) -> None:
        """`shape` begins with B, H and T."""
        self.batch, self.heads, self.length = shape[:3]
        self.lag, self.size = lag, log_near.shape[-2]
        self.gate_sums, self.log_near = gate_sums, log_near
        self.exact = log_near.exp() if gate_sums is None else None
        # Of each query, of each key and of the state at each chunk; None: 1
        self.of_queries = self.of_keys = self.of_states = None
        if decay is None and gate_sums is None:
            if at_horizon is not None:
                self.of_queries = self._by_row(at_horizon[None, :, None]).expand(-1, self.length, -1)
            return
        sums = log_near.new_zeros((), dtype=torch.float64) if decay is None else decay[None]
        sums = sums if gate_sums is None else sums + gate_sums
        # Counted from the last far key before a chunk (`before`) or the next one (`after`), at the queries of
        # which sums_i <= before <= after <= sums_j where no weight grows: no factor is above 1.
        device = log_near.device
        starts = torch.arange(0, self.length, self.size, device=device)
        before = sums[..., (starts - lag - 1).clamp(min=0)]
        after = sums[..., (starts + self.size - lag - 1).clamp(0, self.length - 1)]
        number = (torch.arange(self.length + lag, device=device) // self.size).clamp(max=len(starts) - 1)
        queries = sums - before[..., number[: self.length]]
        self.of_queries = self._by_row(queries if at_horizon is None else queries + at_horizon[:, None])
        self.of_keys = self._by_row(after[..., number[lag:]] - sums)
        self.of_states = self._by_row(after - before)

    def _by_row(self, logarithm: Float[Tensor, "B H X"]) -> Float[Tensor, "R X 1"]:
        """B or H may be 1."""
        factor = logarithm.exp().to(self.log_near.dtype).expand(self.batch, self.heads, -1)
        return factor.reshape(self.batch * self.heads, -1, 1)

    def chunks(self) -> list[_Chunk]:
        chunks = []
        for number, start in enumerate(range(0, self.length, self.size)):
            stop = min(start + self.size, self.length)
            near = max(0, start - self.lag)
            leaving = max(0, stop - self.lag) if stop < self.length else near  # nothing comes after the last
            chunks.append(_Chunk(number, slice(start, stop), slice(near, stop), slice(near, leaving)))
        return chunks

    def near(self, chunk: _Chunk) -> Float[Tensor, "B H queries keys"]:
        """w of a chunk's queries on the keys near them. B or H is 1 where all have the same."""
        if self.exact is not None:
            return self.part(self.exact, chunk)[None]
        assert self.gate_sums is not None
        logarithm = self.part(self.log_near, chunk)
        # Counted from the chunk's first token in float64, so that near keys keep all digits in float32.
        origin = self.gate_sums[..., chunk.queries.start, None]
        row, column = (
            (self.gate_sums[..., tokens] - origin).to(logarithm.dtype)
            for tokens in (chunk.queries, chunk.near)
        )
        return (logarithm + (row[..., :, None] - column[..., None, :])).exp()

    def part(
        self, near: Float[Tensor, "N H chunk lag+chunk"], chunk: _Chunk
    ) -> Float[Tensor, "H queries keys"]:
        """What of `log_near`, or of a tensor like it, belongs to a chunk."""
        rows, keys = chunk.queries, chunk.near
        first = rows.start - self.lag  # the key of the first column
        return near[chunk.number if len(near) > 1 else 0][
            :, : rows.stop - rows.start, keys.start - first : keys.stop - first
        ]

    def add_products(
        self,
        sums: Float[Tensor, "N H chunk lag+chunk"],
        chunk: _Chunk,
        one: Float[Tensor, "R queries keys"],
        other: Float[Tensor, "R queries keys"],
    ) -> None:
        """Add `one` times `other`, summed over the batch, to what of `sums` belongs to a chunk."""
        part = self.part(sums, chunk)
        for first in range(0, len(one), self.heads):
            rows = slice(first, first + self.heads)
            part.addcmul_(one[rows], other[rows])

    def weighted(
        self, scores: Float[Tensor, "R queries keys"], near: Float[Tensor, "B H queries keys"]
    ) -> Tensor:
        """`scores` times the near weights, in place."""
        scores.unflatten(0, (self.batch, self.heads)).mul_(near)
        return scores


class ChunkedAttention(Function):
    """sum_j w_ij <q_i, k_j> v_j / sum_j w_ij <q_i, k_j> in O(T), a chunk of queries after another.

    Where `plain_q` and `plain_k` are given, the denominator is theirs: <plain_q_i, sum_j w_ij plain_k_j>, which
    takes no products of single queries and keys. Backward forms the weights of each chunk again; the decayed
    sums before each chunk are kept. With `half` the factors of the large products are rounded to that dtype,
    and the products summed up in float32.

    Shapes: R = B H rows, W width of queries and keys, U that of the plain ones, V of values.
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
    ) -> Float[Tensor, "B H T V"]:
        shape, weights = v.shape, (log_near, at_horizon, decay, gate_sums)
        factors = _Factors(shape, *weights, lag)
        q, k, v = (x.reshape(-1, *x.shape[2:]) for x in (q, k, v))
        output, denominator = torch.empty_like(v), v.new_empty(*v.shape[:2], 1)
        state = v.new_zeros(len(v), q.shape[2], v.shape[2])  # the decayed sum of k_j v_j over the far keys
        summed_k, means = k, None
        if plain_q is not None and plain_k is not None:
            plain_q, summed_k = (x.reshape(-1, *x.shape[2:]) for x in (plain_q, plain_k))
            means = torch.empty_like(plain_q)  # sum_j w_ij plain_k_j
        total = torch.zeros_like(summed_k[:, :1])  # the decayed sum of the far keys
        sums = []
        for chunk in factors.chunks():
            rows, near, leaving = chunk.queries, chunk.near, chunk.leaving
            weight, has_far = factors.near(chunk), near.start > 0
            scores = factors.weighted(_product(q[:, rows], k[:, near].mT, half), weight)
            numerator = _product(scores, v[:, near], half)
            if has_far:
                numerator += _times(_product(q[:, rows], state, half), factors.of_queries, rows)
            if means is None:
                below = scores.sum(dim=-1, keepdim=True)
                if has_far:
                    below += _times(q[:, rows] @ total.mT, factors.of_queries, rows)
            else:
                mean = _product(_every_row(weight, shape), summed_k[:, near], half)
                if has_far:
                    mean += _times(total, factors.of_queries, rows)
                means[:, rows] = mean
                below = (plain_q[:, rows] * mean).sum(dim=-1, keepdim=True)
            denominator[:, rows] = below
            torch.div(numerator, below, out=output[:, rows])
            sums += [state, total]
            if leaving.stop > leaving.start:
                one = slice(chunk.number, chunk.number + 1)
                keys = _times(k[:, leaving], factors.of_keys, leaving)
                state = _add_product(_times(state, factors.of_states, one), keys.mT, v[:, leaving], half)
                keys = keys if means is None else _times(summed_k[:, leaving], factors.of_keys, leaving)
                total = _times(total, factors.of_states, one) + keys.sum(dim=1, keepdim=True)
        ctx.save_for_backward(q, k, v, plain_q, summed_k, *weights, output, denominator, means, *sums)
        ctx.lag, ctx.half = lag, half
        return output.reshape(shape)

    @staticmethod
    def backward(ctx: Any, gradient: Float[Tensor, "B H T V"]) -> tuple[Tensor | None, ...]:
        q, k, v, plain_q, summed_k, *weights, output, denominator, means = ctx.saved_tensors[:12]
        sums, half, shape = ctx.saved_tensors[12:], ctx.half, gradient.shape
        factors = _Factors(shape, *weights, ctx.lag)
        gradient = gradient.reshape(output.shape)
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        d_state, d_total = torch.zeros_like(sums[0]), torch.zeros_like(sums[1])
        d_plain_q = d_plain_k = None
        if means is not None:
            d_plain_q, d_plain_k = torch.empty_like(plain_q), torch.zeros_like(summed_k)
        d_near = torch.zeros_like(weights[0]) if ctx.needs_input_grad[5] else None
        # d log w summed up for each far key, and for each query over its far keys
        by_key = torch.zeros_like(denominator) if ctx.needs_input_grad[7] else None
        by_query = torch.zeros_like(denominator) if any(ctx.needs_input_grad[6:8]) else None
        for chunk in reversed(factors.chunks()):
            rows, near, leaving = chunk.queries, chunk.near, chunk.leaving
            state, total = sums[2 * chunk.number : 2 * chunk.number + 2]
            if leaving.stop > leaving.start:  # keys that this chunk added to the sums of the next one
                one = slice(chunk.number, chunk.number + 1)
                keys = _times(k[:, leaving], factors.of_keys, leaving)
                dv[:, leaving] += _product(keys, d_state, half)
                d_keys = _product(v[:, leaving], d_state.mT, half)
                if d_plain_k is None:
                    d_keys = _times(d_keys + d_total, factors.of_keys, leaving)
                else:
                    d_keys = _times(d_keys, factors.of_keys, leaving)
                    d_plain = _times(d_total, factors.of_keys, leaving)
                    d_plain_k[:, leaving] += d_plain
                    if by_key is not None:
                        by_key[:, leaving] -= (d_plain * summed_k[:, leaving]).sum(dim=-1, keepdim=True)
                dk[:, leaving] += d_keys
                if by_key is not None:
                    by_key[:, leaving] -= (d_keys * k[:, leaving]).sum(dim=-1, keepdim=True)
                d_state = _times(d_state, factors.of_states, one)
                d_total = _times(d_total, factors.of_states, one)
            weight, queries, keys = factors.near(chunk), q[:, rows], k[:, near]
            d_top = gradient[:, rows] / denominator[:, rows]
            d_below = (d_top * output[:, rows]).sum(dim=-1, keepdim=True).neg_()
            scores = factors.weighted(_product(queries, keys.mT, half), weight)
            d_scores = _product(d_top, v[:, near].mT, half)
            if means is None:
                d_scores += d_below
            else:
                d_plain_q[:, rows] = d_below * means[:, rows]
                d_mean = d_below * plain_q[:, rows]
                d_plain_k[:, near] += _product(_every_row(weight, shape).mT, d_mean, half)
            dv[:, near] += _product(scores.mT, d_top, half)
            if d_near is not None:
                if means is not None:
                    factors.add_products(
                        d_near, chunk, _product(d_mean, summed_k[:, near].mT, half), _every_row(weight, shape)
                    )
                factors.add_products(d_near, chunk, d_scores, scores)
            d_scores = factors.weighted(d_scores, weight)
            dq_rows = _product(d_scores, keys, half)
            dk[:, near] += _product(d_scores.mT, queries, half)
            if near.start > 0:
                d_top = _times(d_top, factors.of_queries, rows)
                d_below = _times(d_below, factors.of_queries, rows)
                dq_far = _product(d_top, state.mT, half)
                d_state = _add_product(d_state, queries.mT, d_top, half)
                if means is None:
                    dq_far.addcmul_(d_below, total)
                    d_total = d_total + d_below.mT @ queries
                else:
                    d_mean = _times(d_mean, factors.of_queries, rows)
                    d_total = d_total + d_mean.sum(dim=1, keepdim=True)
                    if by_query is not None:
                        by_query[:, rows] += (d_mean * total).sum(dim=-1, keepdim=True)
                if by_query is not None:
                    by_query[:, rows] += (dq_far * queries).sum(dim=-1, keepdim=True)
                dq_rows += dq_far
            dq[:, rows] = dq_rows
        d_horizon = d_decay = d_gates = None
        if by_query is not None:
            d_decay = by_query.reshape(shape[:3]).double().sum(dim=0)
            d_horizon = d_decay.sum(dim=-1)
            d_decay = None if by_key is None else d_decay + by_key.reshape(shape[:3]).double().sum(dim=0)
        if ctx.needs_input_grad[8]:
            # Each w_ij has F_i - F_j in its logarithm, and <dq_i, q_i> is d log w_ij summed over j.
            d_gates = (dq * q).sum(dim=-1) - (dk * k).sum(dim=-1)
            if means is not None:
                d_gates += (d_plain_q * plain_q).sum(dim=-1) - (d_plain_k * summed_k).sum(dim=-1)
            d_gates = d_gates.reshape(shape[:3]).double()
        dq, dk, dv, d_plain_q, d_plain_k = (
            None if x is None else x.reshape(*shape[:2], *x.shape[1:])
            for x in (dq, dk, dv, d_plain_q, d_plain_k)
        )
        return dq, dk, dv, d_plain_q, d_plain_k, d_near, d_horizon, d_decay, d_gates, None, None


def _product(
    one: Float[Tensor, "R X Y"], other: Float[Tensor, "R Y Z"], half: torch.dtype | None
) -> Float[Tensor, "R X Z"]:
    """The matrix product; with `half` that of the rounded factors, summed up in float32."""
    if half is None:
        return one @ other
    one, other = one.to(half), other.to(half)
    if one.is_cuda:
        return torch.bmm(one, other, out_dtype=torch.float32)
    return one.float() @ other.float()  # the same numbers: float32 holds these products exactly


def _add_product(
    x: Float[Tensor, "R X Z"],
    one: Float[Tensor, "R X Y"],
    other: Float[Tensor, "R Y Z"],
    half: torch.dtype | None,
) -> Float[Tensor, "R X Z"]:
    """`x` and the product, in a new tensor."""
    return torch.baddbmm(x, one, other) if half is None else x + _product(one, other, half)


def _times(x: Tensor, factor: Float[Tensor, "R N 1"] | None, rows: slice) -> Tensor:
    return x if factor is None else x * factor[:, rows]


def _every_row(
    near: Float[Tensor, "B H queries keys"], shape: tuple[int, ...]
) -> Float[Tensor, "R queries keys"]:
    batch, heads = shape[:2]
    if near.shape[:2] == (1, 1):  # without a copy
        return near[0].expand(batch * heads, -1, -1)
    return near.expand(batch, heads, -1, -1).reshape(batch * heads, *near.shape[2:])
