"""Attention with a bias by the query's content for nearby keys: softmax, with PyTorch's kernel for CPUs.

The bias r_i . table[:, t] ends after N tokens, so a strip of queries has it only for the keys from N tokens
before its first query on. The kernel attends to these with a mask, and to all keys further back without one.
The two results are merged by their log-sum-exps, as in ring attention. Backward recomputes the near scores in
plain products, since the kernel does not compute the gradient of a mask. Linear attention (`near_linear`) has
the same near keys, and one sum over all keys further back.

Shapes: N distances with a bias, R rank, Q queries of a strip, M its near keys, W width of queries and keys.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from poslab.model.kernels.cpu_causal import backward_kernel, forward_kernel
from poslab.model.kernels.strips import Strip, strips
from poslab.model.positions import ContentBias


class NearBias(Function):
    """Causal softmax attention of positions 0, 1, 2, ... with a content bias."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Float[Tensor, "B H T W"],
        k: Float[Tensor, "B H T W"],
        v: Float[Tensor, "B H T W"],
        r: Float[Tensor, "B H T R"],
        table: Float[Tensor, "R N"],
        scale: float,
    ) -> Float[Tensor, "B H T W"]:
        """`r` and `table` have the dtype of q."""
        output, logsumexp = torch.empty_like(q), q.new_empty(q.shape[:-1])
        for strip in strips(q.shape[-2], table.shape[1]):
            rows, keys, far = strip.queries, strip.keys, slice(strip.first)
            mask = _sheared(r[:, :, rows] @ table, strip)
            mixed, sums = forward_kernel(
                q[:, :, rows], k[:, :, keys], v[:, :, keys], 0.0, False, attn_mask=mask, scale=scale
            )
            if strip.first:
                behind, sums_behind = forward_kernel(
                    q[:, :, rows], k[:, :, far], v[:, :, far], 0.0, False, scale=scale
                )
                share = torch.sigmoid(sums - sums_behind)[..., None]
                mixed, sums = torch.lerp(behind, mixed, share), torch.logaddexp(sums, sums_behind)
            output[:, :, rows], logsumexp[:, :, rows] = mixed, sums
        ctx.save_for_backward(q, k, v, r, table, output, logsumexp)
        ctx.scale = scale
        return output

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, gradient: Float[Tensor, "B H T W"]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, None]:
        q, k, v, r, table, output, logsumexp = ctx.saved_tensors
        q, k, v, gradient = (x.contiguous() for x in (q, k, v, gradient))
        shared = (gradient * output).sum(dim=-1, keepdim=True)
        d_q, d_k, d_v, d_r = map(torch.zeros_like, (q, k, v, r))
        d_table = torch.zeros_like(table)
        for strip in strips(q.shape[-2], table.shape[1]):
            if strip.first:
                rows, far = (
                    (slice(None), slice(None), tokens) for tokens in (strip.queries, slice(strip.first))
                )
                inputs = gradient[rows], q[rows], k[far], v[far], output[rows], logsumexp[rows]
                gradients = backward_kernel(*inputs, 0.0, False, scale=ctx.scale)
                d_q[rows] += gradients[0]
                d_k[far] += gradients[1]
                d_v[far] += gradients[2]
            for part in strip.parts(*q.shape[:2]):
                rows, keys = (part, slice(None), strip.queries), (part, slice(None), strip.keys)
                scores = (q[rows] @ k[keys].mT).mul_(ctx.scale).add_(_sheared(r[rows] @ table, strip))
                weights = scores.sub_(logsumexp[rows][..., None]).exp_()
                d_v[keys] += weights.mT @ gradient[rows]
                d_scores = (gradient[rows] @ v[keys].mT).sub_(shared[rows]).mul_(weights)
                d_profiles = _by_distance(d_scores, strip, table.shape[1])
                d_r[rows] = d_profiles @ table.mT
                d_table += torch.einsum("bhqr,bhqn->rn", r[rows], d_profiles)
                d_scores.mul_(ctx.scale)
                d_q[rows] += d_scores @ k[keys]
                d_k[keys] += d_scores.mT @ q[rows]
        return d_q, d_k, d_v, d_r, d_table, None


def near_linear(
    turned: tuple[Float[Tensor, "B H T W"], Float[Tensor, "B H T W"]],
    plain: tuple[Float[Tensor, "B H T W"], Float[Tensor, "B H T W"]],
    v: Float[Tensor, "B H T K"],
    bias: ContentBias,
) -> Float[Tensor, "B H T K"]:
    """Return the sums over keys j of exp(bias_ij) <q_i, k_j> v_j, divided by the same sums without v_j.

    Queries and keys are positive; the numerator has them rotated (`turned`), the denominator not (`plain`).
    Strips are recomputed in backward.
    """
    (turned_q, turned_k), (q, k) = turned, plain
    state = turned_k[..., :0, :].mT @ v[..., :0, :]
    total, counted, parts = k[..., :0, :].sum(dim=-2, keepdim=True), 0, []
    for strip in strips(q.shape[-2], bias.table.shape[1]):
        rows, keys, further = strip.queries, strip.keys, slice(counted, strip.first)
        state = state + turned_k[..., further, :].mT @ v[..., further, :]
        total = total + k[..., further, :].sum(dim=-2, keepdim=True)
        counted = strip.first
        near = turned_q[..., rows, :], turned_k[..., keys, :], q[..., rows, :], k[..., keys, :]
        profiles = bias.r[..., rows, :] @ bias.table
        inputs = *near, v[..., keys, :], profiles, state, total, strip
        parts.append(checkpoint(_attend_strip, *inputs, use_reentrant=False, preserve_rng_state=False))
    return torch.cat(parts, dim=-2)


def _attend_strip(
    turned_q: Float[Tensor, "B H Q W"],
    turned_k: Float[Tensor, "B H M W"],
    q: Float[Tensor, "B H Q W"],
    k: Float[Tensor, "B H M W"],
    v: Float[Tensor, "B H M K"],
    profiles: Float[Tensor, "B H Q N"],
    state: Float[Tensor, "B H W K"],
    total: Float[Tensor, "B H 1 W"],
    strip: Strip,
) -> Float[Tensor, "B H Q K"]:
    mask = _sheared(profiles, strip)
    largest = mask.amax(dim=-1, keepdim=True).clamp(min=0).detach()  # cancels in the quotient
    near, far = (mask - largest).exp(), (-largest).exp()
    denominator = (q @ k.mT * near).sum(dim=-1, keepdim=True) + far * (q @ total.mT)
    return ((turned_q @ turned_k.mT * near) @ v + far * (turned_q @ state)) / denominator


def _sheared(profiles: Float[Tensor, "B H Q N"], strip: Strip) -> Float[Tensor, "B H Q M"]:
    """Return the mask of a strip from its biases by distance: 0 from N on, -inf for the keys ahead.

    The mask is a view of rows with the distances in descending order: with a stride shorter by one, each row
    starts one distance further back than the row before it.
    """
    *batch, size, extent = profiles.shape
    far, ahead = (profiles.new_full((1,), value).expand(*batch, size, size) for value in (0.0, -torch.inf))
    return _shear(torch.cat([far, profiles.flip(-1), ahead], dim=-1), strip, extent)


def _by_distance(values: Float[Tensor, "B H Q M"], strip: Strip, extent: int) -> Float[Tensor, "B H Q N"]:
    """Return the values of a strip's near keys by distance, the inverse of `_sheared`."""
    *batch, size, _ = values.shape
    wide = values.new_zeros(*batch, size, extent + 2 * size)
    _shear(wide, strip, extent).copy_(values)
    return wide[..., size : size + extent].flip(-1)


def _shear(wide: Float[Tensor, "B H Q N+2Q"], strip: Strip, extent: int) -> Float[Tensor, "B H Q M"]:
    """Return the view of contiguous `wide` in which column j is key j of the strip for every query."""
    *batch, size, columns = wide.shape
    strides = (*wide.stride()[:-2], columns - 1, 1)
    offset = size + extent - 1 - (strip.start - strip.first)
    return wide.as_strided((*batch, size, strip.stop - strip.first), strides, offset)
