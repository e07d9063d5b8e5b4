"""Causal linear attention (Katharopoulos et al. 2020, arXiv 2006.16236), phi(x) = elu(x) + 1.

    out_i = sum_{j<=i} w_ij <phi(q_i), phi(k_j)> v_j / sum_{j<=i} w_ij <phi(q_i), phi(k_j)>

with w_ij = exp(bias(p_i - p_j)) prod_{j<l<=i} f_l: a bias and gates multiply the kernel, where softmax adds
them to its logarithm. A rotation applies to phi(q) and phi(k) in the numerator only (RoFormer, equation 19):
a rotated product can be negative, and as a denominator it could vanish. Sums are in float32 or wider.

If the bias is geometric past a horizon M (a scheme's `tail`), both sums take O(T) time and memory. Keys less
than about M back have exact weights, and one decayed sum covers all keys before those. A bias without such a
tail is refused when the model is built, unless it is by distance in a window: then M is the window's end,
and keys further back have no weight. A bias by the query's content, which ends after some tokens, has one sum
over all keys further back (kernels/near.py). If channels decay (Wall), this is gated linear attention with a
denominator (kernels/channel_decay.py). If the geometry is not causal, there are sums over the keys on either
side, each as above.
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function

from poslab.config.schema import Options, PairError
from poslab.model.attention import Attention, Site, added_to_logits, cumulative_log_gates
from poslab.model.kernels.channel_decay import CHUNK as CHUNK_BY_CHANNEL
from poslab.model.kernels.channel_decay import by_channels
from poslab.model.kernels.chunked import ChunkedAttention, PairWeights
from poslab.model.kernels.near import near_linear
from poslab.model.positions import ContentBias, Geometry, Scheme, Tail

CHUNK = {"cpu": 64, "cuda": 128}  # queries per step; affects only rounding and speed


class Linear(Attention):
    """Linear attention with a positive feature map: subclasses such as Performer override `feature_map`."""

    form = "O(L)"
    two_sided = True
    windowed = True
    takes_decay = True
    chunk: int | None = None  # None: CHUNK of the device
    products: torch.dtype | None = None  # of the factors of large products; None: the working precision

    def __init__(self, options: Options, geometry: Geometry, scheme: Scheme) -> None:
        super().__init__(options, geometry, scheme)
        if scheme.scales_queries:
            raise PairError(
                f"pos.scheme={scheme.name} multiplies the queries, which cancels in the quotient of linear "
                "attention: choose attention=flash or softmax, or only the scheme that it wraps"
            )
        adds = any(map(scheme.overrides, ("bias", "pairwise_bias", "log_gates")))
        self.decays = False
        if not geometry.causal and any(map(scheme.overrides, ("log_gates", "content_bias"))):
            raise PairError(
                f"pos.scheme={scheme.name} has gates or a bias by content, which linear attention does not "
                "support on both sides: choose attention=softmax, or a scheme such as rope or alibi"
            )
        if scheme.decays_channels:
            if adds or scheme.geometry.window is not None:
                raise PairError(
                    f"pos.scheme={scheme.name} decays each channel, which linear attention supports only "
                    "without a window, gates or a bias: choose attention=flash or softmax"
                )
            return
        if scheme.overrides("content_bias"):
            if adds or scheme.geometry.window is not None or not scheme.geometry.consecutive:
                raise PairError(
                    f"pos.scheme={scheme.name} has a bias by content, which linear attention supports only "
                    "without a window, gates or another bias, at positions 0, 1, 2, ...: choose "
                    "attention=flash or softmax"
                )
            return
        tail = None if scheme.overrides("pairwise_bias") else tail_of(scheme)
        if tail is None:
            raise PairError(
                f"the bias of pos.scheme={scheme.name} never becomes geometric, so linear attention has no "
                "O(L) form: choose attention=flash or softmax, or a scheme with a geometric bias (alibi, t5)"
            )
        log_decay = tail.log_decay
        # Read once, since on CUDA a read waits for the device.
        self.decays = log_decay.requires_grad or log_decay.is_meta or bool(log_decay.any())

    def feature_map(self, x: Float[Tensor, "B H T K"], queries: bool) -> Float[Tensor, "B H T W"]:
        """Return phi of queries or keys; all its values are positive."""
        return EluPlusOne.apply(x)  # type: ignore[no-untyped-call]

    def attend(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        v: Float[Tensor, "B H T K"],
        site: Site,
    ) -> Float[Tensor, "B H T K"]:
        self.kernel = "linear, chunked"
        chunk = min(self.chunk or CHUNK[q.device.type], q.shape[-2])
        # CUDA multiplies bfloat16 many times faster, and the queries have no more digits. Not under gates:
        # their gradient is a long sum of differences, in which rounded products do not cancel.
        fast = q.is_cuda and q.dtype == torch.bfloat16 and site.log_gates is None
        half = torch.bfloat16 if fast else self.products
        q, k, turned_q, turned_k = self._features(q, k, site)
        if site.scheme.decays_channels:
            assert site.transitions is not None
            self.kernel = "linear, decay by channel"
            values = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1).to(q.dtype)
            sums = by_channels(q, k, values, site.transitions, self.chunk or CHUNK_BY_CHANNEL)
            return (sums[..., :-1] / sums[..., -1:]).to(v.dtype)
        unweighted = site.scheme.geometry.window is None and site.scheme.bias_within(1) is None
        if not self.geometry.causal and unweighted:
            self.kernel = "linear, two-sided"
            summed = turned_q @ (turned_k.mT @ v.to(q.dtype))
            return (summed / (q @ k.sum(dim=-2, keepdim=True).mT)).to(v.dtype)
        if site.content_bias is not None:
            self.kernel = "linear, near bias"
            bias = ContentBias(*(part.to(q.dtype) for part in site.content_bias))
            return near_linear((turned_q, turned_k), (q, k), v.to(q.dtype), bias).to(v.dtype)
        factors = (turned_q, turned_k, v.to(q.dtype))
        plain = (None, None) if turned_q is q and turned_k is k else (q, k)
        weights = pair_weights(site, q, chunk, self.decays)
        mixed, below = ChunkedAttention.apply(*factors, *plain, *weights, half)  # type: ignore[no-untyped-call]
        if self.geometry.causal:
            return mixed.to(v.dtype)
        # In reverse order, the keys after a query come before it. Its own key is in both sums.
        self.kernel = "linear, chunked, two-sided"
        positions = site.positions[-1] - site.positions.flip(0)
        weights = pair_weights(replace(site, positions=positions), q, chunk, self.decays, after=True)
        flipped = (None if part is None else part.flip(-2) for part in (*factors, *plain))
        after = ChunkedAttention.apply(*flipped, *weights, half)  # type: ignore[no-untyped-call]
        mixed_after, below_after = (part.flip(-2) for part in after)
        own_weight = weights.log_near[0, :, 0, weights.lag].exp()[:, None, None]
        own_top, own_below = (
            (left * right).sum(dim=-1, keepdim=True) * own_weight
            for left, right in ((turned_q, turned_k), (q, k))
        )
        top = mixed * below + mixed_after * below_after - own_top * factors[2]
        return (top / (below + below_after - own_below)).to(v.dtype)

    def weights(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B H T K"], site: Site, first: int = 0
    ) -> Float[Tensor, "B H Q T"]:
        """Return the weights. With a rotation some can be negative, and a query's need not sum to 1."""
        q, k, turned_q, turned_k = self._features(q, k, site)
        q, turned_q = q[..., first:, :], turned_q[..., first:, :]
        added = added_to_logits(site, q.dtype, slice(first, None))
        # A constant per query cancels in the quotient; this one keeps exp from overflowing.
        pair = (added - added.amax(dim=-1, keepdim=True).detach()).exp()
        products = site.scheme.products(q, k, site.transitions, first)  # without a rotation
        denominator = (products * pair).sum(dim=-1, keepdim=True)
        if not site.scheme.decays_channels:
            products = turned_q @ turned_k.mT
        return products * pair / denominator

    def _features(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return phi(q), phi(k), and both rotated."""
        working = torch.promote_types(q.dtype, torch.float32)
        q, k = self.feature_map(q.to(working), True), self.feature_map(k.to(working), False)
        return q, k, site.turned_queries(q), site.turned_keys(k)


class EluPlusOne(Function):
    """elu(x) + 1 as exp(min(x, 0)) + max(x, 0): the plain sum would round to 0 below x = -17."""

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


def tail_of(scheme: Scheme, device: torch.device | None = None) -> Tail | None:
    """Return the tail of the bias; with a window, it begins where the window ends and the bias is -inf."""
    window = scheme.geometry.window
    if window is None or not scheme.by_distance:
        return scheme.tail()
    return Tail(window, torch.zeros(scheme.geometry.heads, device=device))


def pair_weights(
    site: Site, like: Float[Tensor, "B H T W"], chunk: int, decays: bool, after: bool = False
) -> PairWeights:
    """Return the weights w in the dtype and on the device of `like`. `decays`: log_decay is not all 0.

    With `after`, return the weights of the keys after a query, by their distance.
    """
    scheme, positions = site.scheme, site.positions
    tail = tail_of(scheme, like.device)
    assert tail is not None  # Linear's constructor refuses such a scheme
    lag = max(tail.horizon - 1, 0)
    tokens = torch.arange(-lag, chunk, device=like.device)
    reach = max(lag + chunk, tail.horizon + 1)
    if scheme.geometry.consecutive:
        distance = (tokens[lag:, None] - tokens)[None]
    else:  # random positions are anywhere below L; indices outside the sequence are not read
        starts = torch.arange(0, len(positions), chunk, device=like.device)
        near = positions[(starts[:, None] + tokens).clamp(0, len(positions) - 1)]
        distance = near[:, lag:, None] - near[:, None, :]
        reach = max(reach, scheme.geometry.context_length)
    bias = scheme.bias_within(reach, like.device, after)
    at_horizon = decay = None
    if bias is None:
        by_distance = like.new_zeros(1, reach)
    else:
        largest = bias.amax(dim=-1, keepdim=True)
        if (
            not scheme.geometry.causal
            and (opposite := scheme.bias_within(reach, like.device, not after)) is not None
        ):
            largest = torch.maximum(largest, opposite.amax(dim=-1, keepdim=True))
        shifted = bias - largest.detach()  # a constant per head cancels in the quotient
        by_distance = shifted.to(like.dtype)
        log_decay = tail.log_decay.to(like.device, torch.float64)
        at_horizon = shifted[:, tail.horizon].double() - tail.horizon * log_decay
        decay = log_decay[:, None] * positions if decays else None
    log_near = by_distance[:, distance.clamp(min=0)].masked_fill(distance < 0, -torch.inf)
    gate_sums = None if site.log_gates is None else cumulative_log_gates(site.log_gates)
    return PairWeights(log_near.transpose(0, 1), at_horizon, decay, gate_sums, lag)
