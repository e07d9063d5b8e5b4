"""A state that decays and takes in a key and a value per token, computed by chunks and by steps.

With decays a_t <= 1 and keys k_t, the state S (K x V) of a head is

    S_t = a_t S_{t-1} + k_t u_t^T,    o_t = S_t^T q_t,

where u_t = v_t. Under the delta rule with strength b_t, what the decayed state holds under k_t is subtracted:

    u_t = b_t (v_t - a_t S_{t-1}^T k_t),    so S_t = a_t (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T

(Yang et al. 2024, arXiv 2412.06464, equation 10; transposed here). Let S be the state before a chunk, and G
the running sums of log a from its first token on. Its tokens' u solve a triangular system (section 3.3):
u_i + b_i sum over j < i of exp(G_i - G_j) <k_i, k_j> u_j = b_i (v_i - exp(G_i) S^T k_i).
No exponent is above 0.

Shapes: B batch, H heads, T tokens, K width of queries and keys, V of values, N chunks of C tokens.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad


def by_chunks(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    log_decay: Float[Tensor, "#B H T"],
    strength: Float[Tensor, "B H T"] | None = None,
    chunk: int = 64,
) -> Float[Tensor, "B H T V"]:
    """Return o in time and memory linear in T; with a `strength` b, by the delta rule."""
    length = q.shape[-2]
    chunk = min(chunk, length)
    missing = -length % chunk  # tokens to pad the last chunk with, which change nothing
    q, k, v = (_chunks(x, chunk, missing) for x in (q, k, v))
    sums = _chunks(log_decay[..., None], chunk, missing)[..., 0].cumsum(dim=-1)
    ahead = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).triu(1)
    between = (sums[..., :, None] - sums[..., None, :]).masked_fill(ahead, -torch.inf).exp()
    from_start, to_end = sums.exp()[..., None], (sums[..., -1:] - sums).exp()[..., None]
    held = None
    if strength is not None:
        b = _chunks(strength[..., None], chunk, missing)
        system = (b * between * (k @ k.mT)).tril(-1)
        known = torch.cat((b * v, b * from_start * k), dim=-1)
        solved = torch.linalg.solve_triangular(system, known, upper=False, unitriangular=True)
        v, held = solved.split((v.shape[-1], k.shape[-1]), dim=-1)
    parts = [between * (q @ k.mT), from_start * q, (to_end * k).mT, v, from_start[..., -1:, :]]
    parts += [] if held is None else [held]
    state, outputs = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1]), []
    # Unbound: the gradient of each v[:, :, n] would be as large as v, and time would be quadratic in T.
    for within, before, keys, values, decay, *erased in zip(*(x.unbind(2) for x in parts), strict=True):
        if erased:
            values = values - erased[0] @ state
        outputs.append(within @ values + before @ state)
        state = decay * state + keys @ values
    return torch.cat(outputs, dim=-2)[..., :length, :]


def _chunks(x: Float[Tensor, "B H T W"], chunk: int, missing: int) -> Float[Tensor, "B H N C W"]:
    """Split x into chunks, and pad the last one with zeros."""
    return pad(x, (0, 0, 0, missing)).reshape(*x.shape[:2], -1, chunk, x.shape[-1])


def by_steps(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    log_decay: Float[Tensor, "#B H T"],
    strength: Float[Tensor, "B H T"] | None = None,
) -> Float[Tensor, "B H T V"]:
    """Return o, computed token by token: the reference for `by_chunks`."""
    state, outputs = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1]), []
    for t in range(q.shape[-2]):
        query, key, value = (x[..., t, :, None] for x in (q, k, v))
        state = log_decay[..., t, None, None].exp() * state
        if strength is not None:
            value = strength[..., t, None, None] * (value - state.mT @ key)
        state = state + key @ value.mT
        outputs.append((state.mT @ query).squeeze(-1))
    return torch.stack(outputs, dim=-2)
