"""Sums over earlier tokens in which each channel of a product decays: gated linear attention.

    out_i = sum_{j<=i} sum_c q_ic k_jc exp(G_ic - G_jc) v_j

(Yang et al. 2024, arXiv 2312.06635, section 4.2). G is the running sum of the gates' logarithms, which never
increases. A state (K x V) holds the keys before a chunk, decayed to its first token; within the chunk each
pair has its own weight. No exponent is above 0.

Shapes: B batch, H heads, T tokens, K width of queries and keys, V of values.
"""

import torch
from jaxtyping import Float
from torch import Tensor

CHUNK = 16  # tokens; affects only rounding, speed and memory, which is CHUNK x T x K numbers per head


def by_channels(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    log_decay: Float[Tensor, "B H T K"],
    chunk: int = CHUNK,
) -> Float[Tensor, "B H T V"]:
    """Return the sums, in time and memory linear in T; `log_decay` is G, in float64."""
    outputs = []
    state, until = q.new_zeros(*q.shape[:-2], q.shape[-1], v.shape[-1]), log_decay[..., :1, :]
    # Split once: each slice's gradient would be as large as the whole, and time quadratic in T.
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
