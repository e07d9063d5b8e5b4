"""The contract of an attention: how the tokens of a layer take from one another.

An attention is one module of this package, or of another (poslab.config.registry), named by `kind:` in its
YAML file in conf/attention, with one public subclass of Attention. It overrides

    form           how it computes: exact, fused or O(L)
    options_class  the keys of its YAML file beside `kind`, where there are any
    __init__       to raise PairError for a scheme that it cannot serve
    attend         the result: a mean of the values up to each token
    weights        the same as a T x T matrix, where it is not softmax, or as some rows of it; inspection, the
                   last block at evaluation and tests use it
    draw           to draw random numbers that belong to the model, such as Performer's features

and knows no scheme by name: it calls the scheme's hooks where its mathematics has a place for them.
`Attention.scores` shows all of them: what is multiplied (`logit_features`), how it is turned
(`rotate_queries`, `rotate_keys`), and what is added (`pairwise_bias`, `log_gates`).

Shapes: B batch, H heads, T tokens, K head width, Q the queries that rows of a matrix are formed for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poslab.config.registry import find, options_of, part_name
from poslab.config.schema import Options
from poslab.model.positions import Geometry, Scheme

MOST_ROWS = 128  # rows of weights that live at a time: 128 x T a head, as in strips of fused attention


@dataclass(frozen=True)
class Site:
    """Where an attention works: the scheme of its layer, the tokens' positions, and the layer's gates."""

    scheme: Scheme
    positions: Int[Tensor, "T"]  # ascending; 0, 1, 2, ... where `scheme.geometry.consecutive`
    log_gates: Float[Tensor, "B H T"] | None = None  # what `scheme.log_gates` returns for the layer's input


class Attention(nn.Module):
    """Causal attention of one layer: no token takes anything from a later one."""

    options_class: ClassVar[type[Options]] = Options
    # exact: forms all T x T scores; fused: softmax without that matrix; O(L): time and memory grow as T does
    form: ClassVar[Literal["exact", "fused", "O(L)"]]

    def __init__(self, options: Options, geometry: Geometry, scheme: Scheme) -> None:
        """`scheme` is the one of this layer. Raises PairError where the two cannot work together."""
        super().__init__()
        self.options = options
        self.geometry = geometry
        self.kernel = ""  # the code that the last `attend` ran, for the run record

    @property
    def name(self) -> str:
        """Its `attention.kind`: the name of its module, of one in another package the full name."""
        return part_name(type(self), __name__)

    def attend(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        v: Float[Tensor, "B H T K"],
        site: Site,
    ) -> Float[Tensor, "B H T K"]:
        """The values up to each token, mixed by how well its query fits their keys. Sets `kernel`.

        Called with autocast off, in the dtype of the queries: an attention chooses its working precision.
        """
        raise NotImplementedError

    def attend_last(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        v: Float[Tensor, "B H T K"],
        site: Site,
        last: int,
    ) -> Float[Tensor, "B H last K"]:
        """What `attend` gives the final `last` tokens, without the others where that is less work.

        A few tokens are served by their rows of `weights`, whatever code `attend` runs; `kernel` stays then.
        """
        length = q.shape[-2]
        if last > min(MOST_ROWS, length // 2):
            return self.attend(q, k, v, site)[..., -last:, :]
        weights = self.weights(q, k, site, length - last)
        return (weights @ v.to(weights.dtype)).to(v.dtype)

    def weights(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B H T K"], site: Site, first: int = 0
    ) -> Float[Tensor, "B H Q T"]:
        """How much of each key's value (last axis) each query takes: attend(q, k, v, site) is weights @ v.

        Rows of the queries from the one numbered `first` on. Softmax of the scores, unless overridden. In
        float32 at least, whatever the dtype of q and k.
        """
        return self.scores(q, k, site, first).softmax(dim=-1)

    def scores(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B H T K"], site: Site, first: int = 0
    ) -> Float[Tensor, "B H Q T"]:
        """Softmax's logits: q·k / sqrt(K) and all that is added to it; -inf for keys after the query."""
        scheme, positions = site.scheme, site.positions
        scale = q.shape[-1] ** -0.5
        working = torch.promote_types(q.dtype, torch.float32)
        q = scheme.rotate_queries(scheme.logit_features(q.to(working)), positions)
        k = scheme.rotate_keys(scheme.logit_features(k.to(working)), positions)
        scores: Float[Tensor, "B H Q T"] = q[..., first:, :] @ k.mT * scale
        return scores + added_to_logits(site, working, first)

    def draw(self, stream: torch.Generator) -> None:
        """Set initial values other than GPT-2's, from `stream` alone."""


def distances(positions: Int[Tensor, "T"], start: int, stop: int) -> Int[Tensor, "Q N"]:
    """How far the keys [0, stop) lie behind the queries [start, stop); negative for keys after the query."""
    return positions[start:stop, None] - positions[:stop]


def cumulative_log_gates(log_gates: Float[Tensor, "B H T"]) -> Float[Tensor, "B H T"]:
    """F_t, the sum of the gates' logarithms up to token t, in float64.

    The logit of query i on key j gains F_i - F_j, the gates after j up to i: at most 0.
    """
    return log_gates.double().cumsum(dim=-1)


def added_to_logits(site: Site, dtype: torch.dtype, first: int = 0) -> Float[Tensor, "B H Q T"]:
    """Bias, gates and the causal mask (-inf) of every key and of the queries from number `first` on.

    B or H is 1 where all have the same. From the first query on it is a T x T matrix: for references alone.
    """
    positions = site.positions
    added = torch.zeros(1, 1, 1, 1, dtype=dtype, device=positions.device)
    bias = site.scheme.pairwise_bias(positions[first:], positions)
    if bias is not None:
        added = added + bias.to(dtype)
    if site.log_gates is not None:
        sums = cumulative_log_gates(site.log_gates)
        added = added + (sums[..., first:, None] - sums[..., None, :]).to(dtype)
    return added.masked_fill(distances(positions, first, len(positions)) < 0, -torch.inf)


def build_attention(section: Mapping[str, Any], geometry: Geometry, scheme: Scheme) -> Attention:
    """The attention that the `attention` section of a configuration describes, for a layer under `scheme`.

    Raises ConfigError, and PairError where the scheme cannot work under it.
    """
    kind = find(section.get("kind"), Attention, __name__, "attention.kind")
    return kind(options_of(section, kind, "kind", "attention"), geometry, scheme)
