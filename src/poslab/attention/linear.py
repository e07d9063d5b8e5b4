"""Causal linear attention (Katharopoulos et al. 2020, arXiv 2006.16236), phi(x) = elu(x) + 1.

    out_i = sum_{j<=i} w(i-j) <phi(q_i), phi(k_j)> v_j / sum_{j<=i} w(i-j) <phi(q_i), phi(k_j)>

with w(t) = exp(bias(t)), since exp(bias) multiplies the kernel where softmax adds the bias to its logarithm.
A rotation turns phi(q) and phi(k), in the numerator alone (RoFormer, equation 19): the rotated product can
be negative, and as a denominator it could vanish. All of it in float32 at least.

Where the bias is geometric past a horizon M (a scheme's `tail`), both sums take O(T) time and memory: exact
weights for the keys less than about M back, and one decayed sum over all keys before those. A bias without
such a tail goes by the masked (T, T) products.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import elu, pad

from poslab.attention import Attention, distances
from poslab.config import Options
from poslab.positions import Scheme, Tail

CHUNK = 64  # tokens; no effect on the result but rounding


class LinearOptions(Options):
    pass


class Linear(Attention):
    options_class = LinearOptions

    def attend(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        v: Float[Tensor, "B H T K"],
        scheme: Scheme,
        positions: Int[Tensor, "T"],
    ) -> Float[Tensor, "B H T K"]:
        working = torch.promote_types(q.dtype, torch.float32)
        q, k, values = elu(q.to(working)) + 1, elu(k.to(working)) + 1, v.to(working)
        turned_q, turned_k = scheme.rotate(q, positions), scheme.rotate(k, positions)
        ones = torch.ones_like(values[..., :1])
        tail = scheme.tail()
        if tail is None:
            self.kernel = "linear, masked quadratic"
            weight = masked_weights(_weights(scheme, q.shape[-2], q))
            numerator = (turned_q @ turned_k.mT * weight) @ values
            denominator = (q @ k.mT * weight).sum(dim=-1, keepdim=True)
        else:
            self.kernel = "linear, chunked"
            reach = _whole_chunks(tail.horizon, CHUNK) + CHUNK
            weights = _weights(scheme, reach, q)
            if turned_q is q:  # one pass: the denominator is one more column of the values
                both = weighted_sums(q, k, torch.cat([values, ones], dim=-1), weights, tail)
                numerator, denominator = both[..., :-1], both[..., -1:]
            else:
                numerator = weighted_sums(turned_q, turned_k, values, weights, tail)
                denominator = weighted_sums(q, k, ones, weights, tail)
        return (numerator / denominator).to(v.dtype)


def _weights(scheme: Scheme, length: int, like: Tensor) -> Float[Tensor, "H N"]:
    """w(t) for the distances t < length, at most 1: a constant a head cancels in the quotient."""
    bias = scheme.bias(torch.arange(length, device=like.device))
    if bias is None:
        return like.new_ones(like.shape[1], length)
    bias = bias.to(like.dtype)
    return (bias - bias.amax(dim=-1, keepdim=True).detach()).exp()


def masked_weights(weights: Float[Tensor, "H T"]) -> Float[Tensor, "H T T"]:
    """w(i - j) for every query i and key j, 0 where j > i."""
    distance = distances(0, weights.shape[-1], weights.device)
    return weights[:, distance.clamp(min=0)] * (distance >= 0)


def weighted_sums(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    weights: Float[Tensor, "H N"],
    tail: Tail,
    chunk: int = CHUNK,
) -> Float[Tensor, "B H T V"]:
    """sum_{j<=i} w(i-j) <q_i, k_j> v_j for every i, in O(T).

    `weights` holds w(t) for t < N, with N at least one chunk more than the horizon in whole chunks; past the
    horizon w(t + 1) = w(t) exp(log_decay). No factor is above 1 where no weight is and log_decay <= 0.
    """
    length, lag = q.shape[-2], _whole_chunks(tail.horizon, chunk) // chunk
    q, k, v = (_cut(x, chunk) for x in (q, k, v))
    # Near keys: the chunk of the query and the `lag` chunks before it, by their exact weights.
    inside = torch.arange(chunk, device=q.device)
    result = torch.zeros_like(v)
    for back in range(min(lag + 1, q.shape[2])):
        distance = back * chunk + inside[:, None] - inside
        weight = (weights[:, distance.clamp(min=0)] * (distance >= 0))[:, None]  # (H, 1, chunk, chunk)
        result = result + (q @ _delayed(k, back).mT * weight) @ _delayed(v, back)
    # Far keys: each chunk's sum, decayed to its end, then from chunk to chunk.
    log_decay = tail.log_decay.to(q)[:, None]
    to_end = (log_decay * (chunk - 1 - inside)).exp()[:, None, :, None]
    summed = (k * to_end).mT @ v  # (B, H, chunks, K, V)
    step = (log_decay * chunk).exp()[..., None]  # (H, 1, 1)
    state, states = torch.zeros_like(summed[:, :, 0]), []
    for each in summed.unbind(dim=2):
        states.append(state)
        state = state * step + each
    # Before chunk c - lag lies what is at least `lag` chunks and one token away from any query of chunk c.
    far = _delayed(torch.stack(states, dim=2), lag)
    from_end = weights[:, lag * chunk, None] * (log_decay * (inside + 1)).exp()
    result = result + (q @ far) * from_end[:, None, :, None]
    return result.flatten(2, 3)[..., :length, :]


def _whole_chunks(horizon: int, chunk: int) -> int:
    return -(-horizon // chunk) * chunk


def _cut(x: Float[Tensor, "B H T X"], chunk: int) -> Float[Tensor, "B H N chunk X"]:
    """`x` in chunks of tokens, the last one filled up with zeros."""
    filled = pad(x, (0, 0, 0, -x.shape[-2] % chunk))
    return filled.reshape(*x.shape[:2], -1, chunk, x.shape[-1])


def _delayed(x: Float[Tensor, "B H N X Y"], chunks: int) -> Float[Tensor, "B H N X Y"]:
    """`x` moved so many chunks later, zeros before."""
    return x if chunks == 0 else pad(x, (0, 0, 0, 0, chunks, 0))[:, :, : x.shape[2]]
