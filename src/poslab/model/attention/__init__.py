"""The contract of an attention, and how one is found.

An attention is one module here, named by `kind:` in its YAML file in conf/attention, with one subclass of
Attention. It calls a scheme's hooks where its mathematics wants them, and knows no scheme by name.

Shapes: B batch, H heads, T tokens, K head width.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poslab.config.registry import find, options_of
from poslab.config.schema import ConfigError, Options
from poslab.model.positions import Geometry, Scheme


class PairError(ConfigError):
    """A scheme that this attention cannot serve; the message says what to choose instead."""


class Attention(nn.Module):
    """Causal attention of one layer."""

    options_class: ClassVar[type[Options]]
    # exact: forms all scores; fused: the same numbers without a T x T matrix; O(L): in time and memory
    form: ClassVar[Literal["exact", "fused", "O(L)"]]

    def __init__(self, options: Options, geometry: Geometry, scheme: Scheme) -> None:
        """Raises PairError when the scheme cannot work here."""
        super().__init__()
        self.options = options
        self.geometry = geometry
        self.kernel = ""  # what ran last; the run record names it

    def attend(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        v: Float[Tensor, "B H T K"],
        scheme: Scheme,
        positions: Int[Tensor, "T"],
        log_gates: Float[Tensor, "B H T"] | None = None,
    ) -> Float[Tensor, "B H T K"]:
        """What each token takes from those up to it; `scheme` is the one of this layer.

        `positions` are ascending, and 0, 1, 2, ... where the scheme's geometry is consecutive.
        """
        raise NotImplementedError

    def weights(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        scheme: Scheme,
        positions: Int[Tensor, "T"],
        log_gates: Float[Tensor, "B H T"] | None = None,
    ) -> Float[Tensor, "B H T T"]:
        """How much of each key's value (last axis) each query takes: softmax's, unless overridden.

        It forms the T x T matrix, in float32 at least: for references and for looking at a model.
        """
        return self.scores(q, k, scheme, positions, log_gates).softmax(dim=-1)

    def scores(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        scheme: Scheme,
        positions: Int[Tensor, "T"],
        log_gates: Float[Tensor, "B H T"] | None = None,
    ) -> Float[Tensor, "B H T T"]:
        """Logits with all that is added to them; -inf where the key lies ahead of the query."""
        scale = q.shape[-1] ** -0.5
        working = torch.promote_types(q.dtype, torch.float32)
        q = scheme.rotate_queries(scheme.logit_features(q.to(working)), positions)
        k = scheme.rotate_keys(scheme.logit_features(k.to(working)), positions)
        scores: Float[Tensor, "B H T T"] = q @ k.mT * scale
        return scores + added_to_logits(scheme, positions, log_gates, working)

    def draw(self, stream: torch.Generator) -> None:
        """Set the initial values that are drawn, other than GPT-2's."""


def distances(positions: Int[Tensor, "T"], start: int, stop: int) -> Int[Tensor, "Q N"]:
    """How far keys [0, stop) lie behind queries [start, stop); < 0 is masked."""
    return positions[start:stop, None] - positions[:stop]


def forgotten(log_gates: Float[Tensor, "B H T"]) -> Float[Tensor, "B H T"]:
    """F_t, the sum of the gates' logarithms up to token t, float64: key j loses F_j - F_i to query i."""
    return log_gates.double().cumsum(dim=-1)


def added_to_logits(
    scheme: Scheme,
    positions: Int[Tensor, "T"],
    log_gates: Float[Tensor, "B H T"] | None,
    dtype: torch.dtype,
) -> Float[Tensor, "B H T T"]:
    """Bias, gates and the causal mask (-inf) of every query and key; axes that all share have size 1.

    For the references alone: it is a T x T matrix.
    """
    added = torch.zeros(1, 1, 1, 1, dtype=dtype, device=positions.device)
    bias = scheme.pairwise_bias(positions, positions)
    if bias is not None:
        added = added + bias.to(dtype)
    if log_gates is not None:
        total = forgotten(log_gates)
        added = added + (total[..., :, None] - total[..., None, :]).to(dtype)
    return added.masked_fill(distances(positions, 0, len(positions)) < 0, -torch.inf)


def build_attention(section: Mapping[str, Any], geometry: Geometry, scheme: Scheme) -> Attention:
    """The attention that the `attention` section of a configuration describes, for a layer under `scheme`."""
    kind = find(section.get("kind"), Attention, __name__, "attention.kind")
    return kind(options_of(section, kind, "kind", "attention"), geometry, scheme)
