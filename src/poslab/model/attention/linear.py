"""Causal linear attention (Katharopoulos et al. 2020, arXiv 2006.16236), phi(x) = elu(x) + 1.

    out_i = sum_{j<=i} w_ij <phi(q_i), phi(k_j)> v_j / sum_{j<=i} w_ij <phi(q_i), phi(k_j)>

with w_ij = exp(bias(p_i - p_j)) prod_{j<l<=i} f_l: a bias and gates multiply the kernel where softmax adds
them to its logarithm. A rotation turns phi(q) and phi(k), in the numerator alone (RoFormer, equation 19): the
rotated product can be negative, and as a denominator it could vanish. All of it in float32 at least.

Where the bias is geometric past a horizon M (a scheme's `tail`), both sums take O(T) time and memory: exact
weights for the keys less than about M back, and one decayed sum over all keys before those. Backward forms
it all again, a span of tokens at a time. A bias without such a tail is refused when the model is built.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from poslab.config.schema import Options, PairError
from poslab.model.attention import Attention, Site, added_to_logits, cumulative_log_gates
from poslab.model.positions import Geometry, Scheme

CHUNK = 64  # tokens whose products are formed at a time; no effect on the result but rounding
SPAN = 16  # chunks whose intermediate results live at a time


class Linear(Attention):
    """Linear attention of any positive feature map: subclasses such as Performer override `feature_map`."""

    form = "O(L)"
    chunk = CHUNK
    span = SPAN

    def __init__(self, options: Options, geometry: Geometry, scheme: Scheme) -> None:
        super().__init__(options, geometry, scheme)
        if scheme.tail() is None:
            raise PairError(
                f"linear attention has no O(L) form under pos.scheme={scheme.name}, whose bias never becomes "
                "geometric: choose attention=flash or softmax, or a scheme whose bias does (alibi, t5)"
            )

    def feature_map(self, x: Float[Tensor, "B H T K"], queries: bool) -> Float[Tensor, "B H T W"]:
        """phi of queries or of keys, positive."""
        # elu(x) + 1 is exp(x) for x <= 0; written as a sum it would be rounded to 0 from -17 on.
        return torch.where(x > 0, x + 1, x.clamp(max=0).exp())

    def attend(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        v: Float[Tensor, "B H T K"],
        site: Site,
    ) -> Float[Tensor, "B H T K"]:
        self.kernel = "linear, chunked"
        weights = pair_weights(site, q, self.chunk)
        sizes = (self.chunk, self.span)
        q, k, turned_q, turned_k = self._features(q, k, site)
        values = v.to(q.dtype)
        ones = torch.ones_like(values[..., :1])
        if turned_q is q and turned_k is k:  # one pass: the denominator is one more column of the values
            both = weighted_sums(q, k, torch.cat([values, ones], dim=-1), weights, *sizes)
            numerator, denominator = both[..., :-1], both[..., -1:]
        else:
            numerator = weighted_sums(turned_q, turned_k, values, weights, *sizes)
            denominator = weighted_sums(q, k, ones, weights, *sizes)
        return (numerator / denominator).to(v.dtype)

    def weights(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B H T K"], site: Site, first: int = 0
    ) -> Float[Tensor, "B H Q T"]:
        """Under a rotation some weights are negative, and those of a query need not sum to 1."""
        q, k, turned_q, turned_k = self._features(q, k, site)
        q, turned_q = q[..., first:, :], turned_q[..., first:, :]
        added = added_to_logits(site, q.dtype, first)
        # A constant a query cancels in the quotient; this one keeps exp from overflowing.
        pair = (added - added.amax(dim=-1, keepdim=True).detach()).exp()
        denominator = (q @ k.mT * pair).sum(dim=-1, keepdim=True)
        weights: Float[Tensor, "B H Q T"] = turned_q @ turned_k.mT * pair / denominator
        return weights

    def _features(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """phi(q), phi(k), and both rotated."""
        working = torch.promote_types(q.dtype, torch.float32)
        q, k = self.feature_map(q.to(working), True), self.feature_map(k.to(working), False)
        scheme, positions = site.scheme, site.positions
        return q, k, scheme.rotate_queries(q, positions), scheme.rotate_keys(k, positions)


@dataclass(frozen=True)
class PairWeights:
    """log w_ij = near(p_i - p_j) + F_i - F_j; past the horizon M, near(t) = near(M) + (t - M) log_decay."""

    near: Float[Tensor, "H N"]  # at most 0: a constant a head cancels in the quotient
    horizon: int  # M, tokens
    log_decay: Float[Tensor, "H"]  # float64
    positions: Int[Tensor, "T"]
    consecutive: bool  # whether the positions are 0, 1, 2, ...
    gate_sums: Float[Tensor, "B H T"] | None  # F, float64; it falls from token to token


def pair_weights(site: Site, like: Tensor, chunk: int) -> PairWeights:
    """The weights w at a site, in the dtype and on the device of `like`, float32 at least."""
    scheme = site.scheme
    tail = scheme.tail()
    assert tail is not None  # Linear's constructor refuses such a scheme
    consecutive = scheme.geometry.consecutive
    # Keys are near up to two chunks past the horizon; positions that are drawn can lie anywhere below L.
    reach = (_chunks(tail.horizon, chunk) + 1) * chunk
    if not consecutive:
        reach = max(reach, scheme.geometry.context_length)
    bias = scheme.bias(torch.arange(reach, device=like.device))
    working = torch.promote_types(like.dtype, torch.float32)
    if bias is None:
        near = torch.zeros(scheme.geometry.heads, reach, dtype=working, device=like.device)
    else:
        near = (bias - bias.amax(dim=-1, keepdim=True).detach()).to(working)
    return PairWeights(
        near,
        tail.horizon,
        tail.log_decay.to(like.device, torch.float64),
        site.positions,
        consecutive,
        None if site.log_gates is None else cumulative_log_gates(site.log_gates),
    )


@dataclass(frozen=True)
class _Carry:
    """What a span of chunks hands to the next one. `lag` chunks before a query chunk may still be near it."""

    state: Float[Tensor, "B H W V"]  # the decayed sum over the keys further back than `keys`
    keys: Float[Tensor, "B H lag chunk W"]
    values: Float[Tensor, "B H lag chunk V"]
    gate_sums: Float[Tensor, "B H lag+1 chunk"] | None


def weighted_sums(
    q: Float[Tensor, "B H T W"],
    k: Float[Tensor, "B H T W"],
    v: Float[Tensor, "B H T V"],
    weights: PairWeights,
    chunk: int,
    span: int,
) -> Float[Tensor, "B H T V"]:
    """sum_{j<=i} w_ij <q_i, k_j> v_j for every i, in O(T).

    A chunk of queries meets the keys of its own and of the `lag` chunks before it by their exact weights,
    and all keys before those by one state, their decayed sum. No factor is above 1 where no weight is.
    """
    length, lag = q.shape[-2], _chunks(weights.horizon, chunk)
    gate_sums = weights.gate_sums
    if gate_sums is not None:  # the last chunk is filled up with the last sum
        gate_sums = pad(gate_sums, (0, -length % chunk), mode="replicate")
        gate_sums = gate_sums.reshape(*gate_sums.shape[:2], -1, chunk)
    q, k, v = (_cut(x, chunk) for x in (q, k, v))
    carry = _Carry(  # before the first chunk: no keys, and the first token's gate
        q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1]),
        k.new_zeros(*k.shape[:2], lag, *k.shape[3:]),
        v.new_zeros(*v.shape[:2], lag, *v.shape[3:]),
        None if gate_sums is None else gate_sums[:, :, :1, :1].expand(-1, -1, lag + 1, chunk),
    )
    # split, not slices: its gradient is one concatenation, that of each slice as long as the whole sequence.
    spans = [torch.split(x, span, dim=2) for x in (q, k, v)]
    gates = [None] * len(spans[0]) if gate_sums is None else torch.split(gate_sums, span, dim=2)
    results = []
    for number, inputs in enumerate(zip(*spans, gates, strict=True)):
        arguments = (*inputs, carry, weights, number * span, lag)
        if len(gates) > 1 and torch.is_grad_enabled():
            result, carry = checkpoint(_span, *arguments, use_reentrant=False, preserve_rng_state=False)
        else:
            result, carry = _span(*arguments)
        results.append(result)
    return torch.cat(results, dim=2).flatten(2, 3)[..., :length, :]


def _span(
    q: Float[Tensor, "B H N chunk W"],
    k: Float[Tensor, "B H N chunk W"],
    v: Float[Tensor, "B H N chunk V"],
    gate_sums: Float[Tensor, "B H N chunk"] | None,
    carry: _Carry,
    weights: PairWeights,
    start: int,
    lag: int,
) -> tuple[Float[Tensor, "B H N chunk V"], _Carry]:
    """The sums of the N query chunks from chunk number `start` on."""
    count, chunk = q.shape[2:4]
    k, v = torch.cat([carry.keys, k], dim=2), torch.cat([carry.values, v], dim=2)
    if gate_sums is not None:
        assert carry.gate_sums is not None
        gate_sums = torch.cat([carry.gate_sums, gate_sums], dim=2)
    # Positions as `gate_sums` has them: of lag + 1 chunks before the span, and of the span. Outside the
    # sequence the first and the last are repeated.
    first, last = (start - lag - 1) * chunk, weights.positions.shape[0] - 1
    tokens = torch.arange(first, (start + count) * chunk, device=q.device).clamp(0, last)
    positions = weights.positions[tokens].reshape(-1, chunk)

    result = torch.zeros_like(v[:, :, :count])
    for back in range(min(lag + 1, start + count)):  # no key lies further back yet
        keys = slice(lag - back, lag - back + count)
        weight = _near_weights(weights, positions, gate_sums, count, lag, back).to(q.dtype)
        result = result + (q @ k[:, :, keys].mT * weight) @ v[:, :, keys]

    far, states = _far_states(k[:, :, :count], v[:, :, :count], carry.state, gate_sums, weights, positions)
    # Nothing lies further back than the first lag + 1 chunks, and `far` of nothing can be any number.
    empty = torch.arange(start, start + count, device=q.device)[:, None] <= lag
    far = far.masked_fill(empty, -torch.inf).exp().to(q.dtype)
    result = result + (q @ states[:, :, :-1]) * far[..., None]
    rest = None if gate_sums is None else gate_sums[:, :, count:]
    return result, _Carry(states[:, :, -1], k[:, :, count:], v[:, :, count:], rest)


def _near_weights(
    weights: PairWeights,
    positions: Int[Tensor, "lag+1+N chunk"],
    gate_sums: Float[Tensor, "B H lag+1+N chunk"] | None,
    count: int,
    lag: int,
    back: int,
) -> Float[Tensor, "B H N chunk chunk"]:
    """w of each query chunk on the key chunk `back` before it. B or H is 1 where all have the same."""
    rows, columns = slice(lag + 1, None), slice(lag + 1 - back, lag + 1 - back + count)
    if weights.consecutive:
        inside = torch.arange(positions.shape[1], device=positions.device)
        distance = (back * positions.shape[1] + inside[:, None] - inside)[None]
    else:
        distance = positions[rows, :, None] - positions[columns, None, :]
    logarithm = weights.near[:, distance.clamp(min=0)].masked_fill(distance < 0, -torch.inf)[None]
    if gate_sums is not None:
        # Counted from the query chunk's first token in float64, so that near keys keep all digits in float32.
        origin = gate_sums[:, :, rows, :1]
        row, column = ((gate_sums[:, :, part] - origin).to(logarithm.dtype) for part in (rows, columns))
        logarithm = logarithm + (row[..., :, None] - column[..., None, :])
    return logarithm.exp()


def _far_states(
    k: Float[Tensor, "B H N chunk W"],
    v: Float[Tensor, "B H N chunk V"],
    state: Float[Tensor, "B H W V"],
    gate_sums: Float[Tensor, "B H lag+1+N chunk"] | None,
    weights: PairWeights,
    positions: Int[Tensor, "lag+1+N chunk"],
) -> tuple[Float[Tensor, "B H N chunk"], Float[Tensor, "B H N+1 W V"]]:
    """The logarithm of each query's factor on the state of far keys, and the states around each key chunk.

    `k` and `v` are the chunks that leave the near range of the N query chunks one after another; `state` is
    the decayed sum over the keys before them.
    """
    count = k.shape[2]
    # Far keys by C = log_decay p + F, counted from the last token of the key chunk before the nearest far
    # one: C_i <= C_end <= C_j where no bias grows, so that no factor is above 1.
    decay = weights.log_decay[:, None, None] * positions
    decay = decay[None] if gate_sums is None else decay + gate_sums
    own, ends = decay[:, :, 1 : count + 1], decay[:, :, : count + 1, -1]
    summed = (k * (ends[:, :, 1:, None] - own).exp().to(k.dtype)[..., None]).mT @ v
    # state_n = exp(end_n - end_0) state_0 + sum_{m<n} exp(end_n - end_{m+1}) summed_m
    later = torch.ones(count + 1, count, dtype=torch.bool, device=k.device).tril(-1)
    steps = (ends[..., :, None] - ends[..., None, 1:]).masked_fill(~later, -torch.inf).exp().to(k.dtype)
    remaining = (ends - ends[..., :1]).exp().to(k.dtype)[..., None, None]
    states = (steps @ summed.flatten(3)).reshape(*k.shape[:2], count + 1, *summed.shape[3:])
    states = states + remaining * state[:, :, None]
    at_horizon = weights.near[:, weights.horizon].double() - weights.log_decay * weights.horizon
    lag = positions.shape[0] - count - 1
    far = at_horizon[:, None, None] + decay[:, :, lag + 1 :] - ends[..., :-1, None]
    return far, states


def _chunks(tokens: int, chunk: int) -> int:
    """The whole chunks that hold so many tokens."""
    return -(-tokens // chunk)


def _cut(x: Float[Tensor, "B H T X"], chunk: int) -> Float[Tensor, "B H N chunk X"]:
    """`x` in chunks of tokens, the last one filled up with zeros."""
    missing = -x.shape[-2] % chunk
    filled = x if missing == 0 else pad(x, (0, 0, 0, missing))
    return filled.reshape(*x.shape[:2], -1, chunk, x.shape[-1])
