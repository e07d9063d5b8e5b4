"""The base of mixers without attention: a state per head that decays and takes in keys and values.

    o_t = S_t^T q_t,    y = W_o (norm(o) * silu(W_g x))

where norm is an RMSNorm of each head, which makes a scale of the queries unnecessary. Queries and keys are
half as wide as values, as in GLA (Yang et al. 2024, arXiv 2312.06635), so W_q, W_k, W_v, W_g and W_o together
have the 4 D^2 parameters of attention. None of them has a bias.

The recurrence itself encodes order, so `none` is its natural scheme. A scheme that changes the input or
rotates queries and keys works too; one that adds to logits is refused.

Shapes: B batch, H heads, T tokens, D model width, V width of a head's values, K of its keys (V / 2).
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import silu

from poslab.config.schema import ConfigError, Options, PairError
from poslab.model.attention import Mixer, Site
from poslab.model.canon import Canon
from poslab.model.kernels.matmul import Linear
from poslab.model.kernels.recurrent import by_chunks
from poslab.model.norms import rms_norm
from poslab.model.positions import Geometry, Scheme

ROTATIONS = "rotate", "rotate_queries", "rotate_keys"
ADDED_TO_LOGITS = "bias", "pairwise_bias", "log_gates", "content_bias"


class Recurrence(Mixer):
    """A mixer with a state that decays by `log_decay`, and is corrected by `strength` unless that is None."""

    form = "O(L)"
    convolved = True  # whether q, k and v pass through a causal convolution over four tokens and silu
    chunk = 64  # tokens; affects only rounding, speed and memory

    def __init__(self, options: Options, geometry: Geometry, scheme: Scheme) -> None:
        super().__init__(options, geometry, scheme)
        width, heads = geometry.width, geometry.heads
        if geometry.head_width % 2:
            raise ConfigError(
                f"attention.kind={self.name} has keys half as wide as a head, but model.width={width} over "
                f"model.heads={heads} gives heads of odd width {geometry.head_width}: choose an even one"
            )
        if scheme.scales_queries or any(map(scheme.overrides, ADDED_TO_LOGITS)):
            raise PairError(
                f"pos.scheme={scheme.name} changes the logits of attention, but attention.kind={self.name} "
                "has none: choose pos=none, rope or learned, or attention=flash"
            )
        self.key_width = geometry.head_width // 2
        self.rotates = any(map(scheme.overrides, (*ROTATIONS, "angles")))
        if self.rotates and not scheme.can_rotate(self.key_width):
            raise PairError(
                f"pos.scheme={scheme.name} cannot rotate keys of width {self.key_width}, half of a head, as "
                f"attention.kind={self.name} needs: choose pos=none, rope or learned, or attention=flash"
            )
        keys = heads * self.key_width
        self.query_key_value_gate = Linear(width, 2 * keys + 2 * width, bias=False)
        self.query_key_value_gate.rows = keys, keys, width, width
        self.convolution = Canon(2 * keys + width) if self.convolved else None
        self.norm = rms_norm(geometry.head_width)
        self.project_attention = Linear(width, width, bias=False)

    def log_decay(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "#B H T"]:
        """Return log a_t <= 0 of each head. `x` is in float32 or wider, and autocast is off."""
        raise NotImplementedError

    def strength(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T"] | None:
        """Return b_t of the delta rule, or None for no correction. `x` is as for `log_decay`."""
        return None

    def forward(self, x: Float[Tensor, "B T D"], site: Site) -> Float[Tensor, "B T D"]:
        self.kernel = f"{self.name}, chunked"
        width = self.geometry.width
        projected: Tensor = self.query_key_value_gate(x)
        read, gate = projected[..., : 2 * width], projected[..., 2 * width :]
        if self.convolution is not None:
            read = silu(self.convolution(read))
        wide = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            q, k, v = self.heads(read.to(wide), site)
            mixed = by_chunks(q, k, v, self.log_decay(x.to(wide)), self.strength(x.to(wide)), self.chunk)
        mixed = mixed.transpose(1, 2).to(gate.dtype)
        if site.last is not None:
            mixed, gate = mixed[:, -site.last :], gate[:, -site.last :]
        return self.project_attention(self.norm(mixed).flatten(-2) * silu(gate))

    def heads(
        self, read: Float[Tensor, "B T C"], site: Site
    ) -> tuple[Float[Tensor, "B H T K"], Float[Tensor, "B H T K"], Float[Tensor, "B H T V"]]:
        """Return queries and keys, rotated by the scheme, and values."""
        shape = *read.shape[:2], self.geometry.heads, -1
        parts: tuple[Tensor, ...] = torch.split(read, list(self.query_key_value_gate.rows[:3]), dim=-1)
        q, k, v = (part.reshape(shape).transpose(1, 2) for part in parts)
        if self.rotates:  # False in a hybrid, where `site.scheme` is for attention only
            scheme = site.scheme
            q = scheme.rotate_queries(scheme.logit_features(q), site.positions)
            k = scheme.rotate_keys(scheme.logit_features(k), site.positions)
        return q, k, v
