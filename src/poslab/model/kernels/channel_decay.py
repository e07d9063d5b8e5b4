"""Sums over earlier tokens in which each channel of a product decays: gated linear attention.

    out_i = sum_{j<=i} sum_c q_ic k_jc exp(G_ic - G_jc) v_j

(Yang et al. 2024, arXiv 2312.06635, section 4.2), G being the running sums of the gates' logarithms, which
never rise. A state (K x V) holds the keys before a chunk, decayed to its first token; keys in the chunk are
paired one by one. Every exponent is a difference that is at most 0.

Shapes: B batch, H heads, T tokens, K width of queries and keys, V of values.
"""

import torch
from jaxtyping import Float
from torch import Tensor

CHUNK = 16  # tokens; affects only rounding, speed and memory, which has CHUNK x T x K numbers of a head


def by_channels(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    log_decay: Float[Tensor, "B H T K"],
    chunk: int = CHUNK,
) -> Float[Tensor, "B H T V"]:
    """Return the sums, in time and memory that grow as T does; `log_decay` is G, in float64."""
    outputs = []
    state, until = q.new_zeros(*q.shape[:-2], q.shape[-1], v.shape[-1]), log_decay[..., :1, :]
    # Split at once: the gradient of each slice would be as large as the whole, and time grow as the square.
    chunks = (torch.split(x, chunk, dim=-2) for x in (q, k, v, log_decay))
    for queries, keys, values, sums in zip(*chunks, strict=True):
        anchor, last = sums[..., :1, :], sums[..., -1:, :]
        state = (anchor - until).to(q.dtype).exp().mT * state
        between = (sums[..., :, None, :] - sums[..., None, :, :]).clamp(max=0).to(q.dtype).exp()
        within = (between * keys[..., None, :, :]) @ queries[..., None]
        before = (queries * (sums - anchor).to(q.dtype).exp()) @ state
        outputs.append(before + within.squeeze(-1).tril() @ values)
        decayed = keys * (last - sums).to(q.dtype).exp()
        state = (last - anchor).to(q.dtype).exp().mT * state + decayed.mT @ values
        until = last
    return torch.cat(outputs, dim=-2)
