"""The contract of a mixer, such as attention: how the tokens of a layer exchange information.

A mixer is a module of this package or of another one (poslab.config.registry), named by `kind:` in its YAML
file in conf/attention. It has one public subclass of Mixer, which overrides

    form           how it computes: exact, fused or O(L)
    options_class  the keys of its YAML file other than `kind`, if there are any
    two_sided      True if it also supports a Geometry that is not causal
    windowed       True if it also supports a Geometry with a window
    takes_sinks    True if `Site.sinks` can take a share of its weights
    takes_decay    True if it is O(L) and supports a scheme that `decays_channels`
    __init__       creates its weights; raises PairError for a scheme that it does not support
    forward        maps hidden states to hidden states
    draw           draws random numbers that belong to the model, such as Performer's features
    of_layers      builds the mixers of all layers, if they differ by more than their schemes

An attention is a subclass of Attention, which projects queries, keys and values. Instead of `forward` it
overrides

    attend         returns the result: a weighted sum of the values up to each token
    weights        returns the T x T matrix of these weights, or some of its rows; only overridden if they are
                   not a softmax. Inspection, the last block at evaluation, and tests use it

A mixer does not know schemes by name: it calls a scheme's hooks where its formula has a place for them.
`Attention.scores` shows all of them: the factors (`logit_features`), their rotation (`rotate_queries`,
`rotate_keys`, `angles`), their products (`transitions`, `products`), and the added terms (`pairwise_bias`,
`log_gates`, `content_bias`, `score_bias`). A mixer's parameters start like GPT-2's
(poslab.model.gpt.initialise): matrices are drawn, and vectors keep the values of the constructor.

Shapes: B batch, H heads, T tokens, D model width, K head width, Q queries, the rows of a matrix.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poslab.config.registry import find, options_of, part_name
from poslab.config.schema import GPT2_BLOCK, BlockOptions, Options, PairError
from poslab.model.canon import Canon
from poslab.model.kernels.matmul import Linear
from poslab.model.kernels.rotation import turn
from poslab.model.norms import rms_norm
from poslab.model.positions import ContentBias, Geometry, Scheme

MAX_ROWS = 128  # up to this many final queries use their rows of `weights` instead of `attend`


@dataclass(frozen=True)
class Site:
    """The context of a mixer: its layer's scheme, positions, sinks, and what the scheme computes from x."""

    scheme: Scheme
    positions: Int[Tensor, "T"]  # ascending; 0, 1, 2, ... if `scheme.geometry.consecutive`
    log_gates: Float[Tensor, "B H T"] | None = None  # `scheme.log_gates` of the layer's input
    angles: Float[Tensor, "B H T K/2"] | None = None  # `scheme.angles` of the layer's input
    content_bias: ContentBias | None = None  # `scheme.content_bias` of the layer's input
    transitions: Float[Tensor, "B H T K"] | None = None  # `scheme.transitions` of the layer's input
    last: int | None = None  # the number of final tokens to compute; None: all
    sinks: Float[Tensor, "H"] | None = None  # one score per head, in addition to those of a query's keys

    @classmethod
    def of(
        cls,
        scheme: Scheme,
        positions: Int[Tensor, "T"],
        x: Float[Tensor, "B T D"],
        sinks: Float[Tensor, "H"] | None = None,
    ) -> "Site":
        """Return the site of a layer with the input `x`."""
        angles, content_bias = scheme.angles(x, positions), scheme.content_bias(x, positions)
        transitions = scheme.transitions(x)
        return cls(scheme, positions, scheme.log_gates(x), angles, content_bias, transitions, sinks=sinks)

    def turned_queries(self, q: Float[Tensor, "B H T W"]) -> Float[Tensor, "B H T V"]:
        """Rotate queries by the scheme's positions, then by its angles."""
        q = self.scheme.rotate_queries(q, self.positions)
        return q if self.angles is None else turn(q, self.angles)

    def turned_keys(self, k: Float[Tensor, "B H T W"]) -> Float[Tensor, "B H T V"]:
        k = self.scheme.rotate_keys(k, self.positions)
        return k if self.angles is None else turn(k, self.angles)


class Mixer(nn.Module):
    """A module that mixes a layer's tokens. If the geometry is causal, no token depends on later ones."""

    options_class: ClassVar[type[Options]] = Options
    # exact: forms all T x T scores; fused: softmax without that matrix; O(L): time and memory linear in T
    form: ClassVar[Literal["exact", "fused", "O(L)"]]
    two_sided: ClassVar[bool] = False
    windowed: ClassVar[bool] = False
    takes_sinks: ClassVar[bool] = False
    takes_decay: ClassVar[bool] = False

    def __init__(self, options: Options, geometry: Geometry, scheme: Scheme) -> None:
        """Raise PairError if the mixer does not support `geometry` or `scheme`, the scheme of this layer."""
        super().__init__()
        self.options = options
        self.geometry = geometry
        self.kernel = ""  # the code that ran last, for the run record
        self.normalised = scheme.normalised
        if not geometry.causal and not self.two_sided:
            raise PairError(
                f"attention.kind={self.name} is causal, but here tokens see later ones: "
                "choose attention=flash or softmax"
            )
        if scheme.overrides("score_bias") and self.form != "exact":
            raise PairError(
                f"pos.scheme={scheme.name} reads all scores of a query, which attention.kind={self.name} "
                "never forms: choose attention=softmax"
            )
        works = {"exact", "fused"} if scheme.products_in_strips else {"exact"}
        decays = self.takes_decay and scheme.decays_channels
        if scheme.overrides("products") and self.form not in works and not decays:
            choice = "flash or softmax" if scheme.products_in_strips else "softmax"
            choice = "flash, softmax or linear" if scheme.decays_channels else choice
            raise PairError(
                f"pos.scheme={scheme.name} changes the product of a query and a key by every token in "
                f"between, which attention.kind={self.name} does not support: choose attention={choice}"
            )
        if scheme.geometry.window is not None and not self.windowed:
            raise PairError(
                f"attention.kind={self.name} does not support windows, and pos gives this layer one of "
                f"{scheme.geometry.window} tokens: choose attention=flash, softmax or linear"
            )

    @classmethod
    def of_layers(cls, options: Options, geometry: Geometry, schemes: Sequence[Scheme]) -> "list[Mixer]":
        """Return a mixer for each of `schemes`, which belong to the layers from the first on, in order."""
        return [cls(options, geometry, scheme) for scheme in schemes]

    @property
    def name(self) -> str:
        """The mixer's `attention.kind`: its module's name, or the full name for another package's module."""
        return part_name(type(self), __name__)

    def forward(self, x: Float[Tensor, "B T D"], site: Site) -> Float[Tensor, "B T D"]:
        """Return each token's mix of the tokens up to it; with `site.last`, for final tokens only (B last D).

        It runs under the trainer's autocast, and sets `kernel`.
        """
        raise NotImplementedError

    def draw(self, stream: torch.Generator) -> None:
        """Set initial values other than GPT-2's, with random numbers only from `stream`."""


class Attention(Mixer):
    """A mixer that weights the tokens' values by how well a query fits their keys.

    In a block it projects q, k and v itself; with `poslab.attention` the caller passes them to `attend`.
    """

    query_key_value: Linear
    canon_projections: nn.Module
    project_attention: Linear
    norm_queries: nn.RMSNorm | None  # over one head
    norm_keys: nn.RMSNorm | None
    gate_attention: Linear | None
    sinks: nn.Parameter | None

    def add_projections(self, block: BlockOptions = GPT2_BLOCK) -> None:
        """Create the projections, norms and sinks of a layer of the GPT."""
        width, heads, head_width = self.geometry.width, self.geometry.heads, self.geometry.head_width
        self.groups = block.query_groups or heads
        key_width = self.groups * head_width
        self.query_key_value = Linear(width, width + 2 * key_width, bias=block.bias)
        self.query_key_value.rows = width, key_width, key_width
        self.canon_projections = Canon(width + 2 * key_width) if "b" in block.canon else nn.Identity()
        self.norm_queries = rms_norm(head_width) if block.qk_norm else None
        self.norm_keys = rms_norm(head_width) if block.qk_norm else None
        self.gate_attention = Linear(width, width, bias=block.bias) if block.output_gate else None
        self.project_attention = Linear(width, width, bias=block.bias)
        self.sinks = nn.Parameter(torch.zeros(heads)) if block.sinks else None

    def forward(self, x: Float[Tensor, "B T D"], site: Site) -> Float[Tensor, "B T D"]:
        q, k, v, gated = self.projected(x, site)
        # Each attention chooses its own working precision, which autocast would lower.
        with torch.autocast(x.device.type, enabled=False):
            if site.last is None:
                mixed = self.attend(q, k, v, gated)
            else:
                mixed = self.attend_last(q, k, v, gated, site.last)
        mixed = mixed.transpose(1, 2).flatten(-2)
        if self.gate_attention is not None:
            mixed = mixed * self.gate_attention(x if site.last is None else x[:, -site.last :]).sigmoid()
        return self.project_attention(mixed)

    def projected(
        self, x: Float[Tensor, "B T D"], site: Site
    ) -> tuple[Float[Tensor, "B H T K"], Float[Tensor, "B H T K"], Float[Tensor, "B H T K"], Site]:
        """Return queries, keys, values, and the site with sinks and what the scheme computes from `x`."""
        heads, head_width = self.geometry.heads, self.geometry.head_width
        # Split before heads are separated, so that the gradients are concatenated without another copy.
        projected = self.canon_projections(self.query_key_value(x))
        parts = projected.split(self.query_key_value.rows, dim=-1)
        q, k, v = (part.unflatten(-1, (-1, head_width)).transpose(1, 2) for part in parts)
        if self.norm_queries is not None and self.norm_keys is not None:
            q, k = self.norm_queries(q).to(v.dtype), self.norm_keys(k).to(v.dtype)  # float32 under autocast
        if self.groups < heads:
            k, v = (part.repeat_interleave(heads // self.groups, dim=1) for part in (k, v))
        return q, k, v, Site.of(site.scheme, site.positions, x, self.sinks)

    def attend(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        v: Float[Tensor, "B H T K"],
        site: Site,
    ) -> Float[Tensor, "B H T K"]:
        """Return the sum of the values up to each token, weighted by how well its query fits their keys.

        Set `kernel`. Autocast is off: an attention chooses its own precision, whatever the dtype of `q`.
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
        """Return `attend` for the final `last` tokens, without computing the others if that is less work.

        For a few tokens it uses their rows of `weights`, whatever `attend` does, and does not set `kernel`.
        """
        length = q.shape[-2]
        if last > min(MAX_ROWS, length // 2):
            return self.attend(q, k, v, site)[..., -last:, :]
        weights = self.weights(q, k, site, length - last)
        return (weights @ v.to(weights.dtype)).to(v.dtype)

    def weights(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B H T K"], site: Site, first: int = 0
    ) -> Float[Tensor, "B H Q T"]:
        """Return each query's weights on the values (last axis): attend(q, k, v, site) is weights @ v.

        The rows begin at query number `first`. Unless overridden, they are the softmax of the scores, or
        their exponentials if the scheme is not `normalised`. They are in float32 or wider for any dtype of q.
        """
        scores = self.scores(q, k, site, first)
        return softmax_beside(site.sinks, scores) if site.scheme.normalised else scores.exp()

    def scores(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B H T K"], site: Site, first: int = 0
    ) -> Float[Tensor, "B H Q T"]:
        """Return softmax's logits: q·k / sqrt(K) plus biases and gates; -inf for masked keys."""
        scheme = site.scheme
        scale = q.shape[-1] ** -0.5
        working = torch.promote_types(q.dtype, torch.float32)
        q = site.turned_queries(scheme.logit_features(q.to(working)))
        k = site.turned_keys(scheme.logit_features(k.to(working)))
        scores = scheme.products(q[..., first:, :], k, site.transitions, first) * scale
        scores = scores + added_to_logits(site, working, slice(first, None))
        added = scheme.score_bias(q[..., first:, :], scores)
        return scores if added is None else scores + added


def softmax_beside(
    sinks: Float[Tensor, "H"] | None, scores: Float[Tensor, "B H Q T"]
) -> Float[Tensor, "B H Q T"]:
    """Return the softmax of the scores over the keys. Sinks take part in it; their weights are dropped."""
    if sinks is None:
        return scores.softmax(dim=-1)
    sums = scores.logsumexp(dim=-1, keepdim=True)
    return (scores - torch.logaddexp(sums, sinks[:, None, None].to(scores.dtype))).exp()


def cumulative_log_gates(log_gates: Float[Tensor, "B H T"]) -> Float[Tensor, "B H T"]:
    """Return F_t, the sum of the gates' logarithms up to token t, in float64.

    The logit of query i on key j gains F_i - F_j <= 0, the sum over the gates after j up to i.
    """
    return log_gates.double().cumsum(dim=-1)


def added_to_logits(
    site: Site, dtype: torch.dtype, queries: slice = slice(None), keys: slice = slice(None)
) -> Float[Tensor, "B H Q N"]:
    """Return the sum of bias, gates and mask (-inf) for these queries and keys, slices of the tokens.

    B or H is 1 if its entries are equal. For all tokens the sum is a T x T matrix.
    """
    rows, columns = site.positions[queries], site.positions[keys]
    added = torch.zeros(1, 1, 1, 1, dtype=dtype, device=rows.device)
    bias = site.scheme.pairwise_bias(rows, columns)
    if bias is not None:
        added = added + bias.to(dtype)
    if site.content_bias is not None:
        distance = site.scheme.distances(rows, columns)
        added = added + site.content_bias.at(distance, queries.start or 0).to(dtype)
    if site.log_gates is not None:
        sums = cumulative_log_gates(site.log_gates)
        added = added + (sums[..., queries, None] - sums[..., None, keys]).to(dtype)
    geometry = site.scheme.geometry
    distance = rows[:, None] - columns  # negative for keys after the query
    if geometry.causal:
        added = added.masked_fill(distance < 0, -torch.inf)
    if geometry.window is not None:
        added = added.masked_fill(distance.abs() >= geometry.window, -torch.inf)
    return added


def build_attentions(
    section: Mapping[str, Any], geometry: Geometry, schemes: Sequence[Scheme]
) -> list[Mixer]:
    """Build the mixers of a configuration's `attention` section, one for the scheme of each layer.

    Raise ConfigError for a section or sizes that cannot work, and PairError for an unsupported scheme.
    """
    kind = mixer_class(section)
    return kind.of_layers(options_of(section, kind, "kind", "attention"), geometry, schemes)


def build_attention(section: Mapping[str, Any], geometry: Geometry, scheme: Scheme) -> Mixer:
    """Build the mixer of the first layer for `scheme`; raise ConfigError as `build_attentions` does."""
    return build_attentions(section, geometry, [scheme])[0]


def mixer_class(section: Mapping[str, Any], where: str = "attention") -> type[Mixer]:
    """Return the class that a section names; `where` is the section's dotted name. Raise ConfigError."""
    return find(section.get("kind"), Mixer, __name__, f"{where}.kind")


def attention_section(section: Mapping[str, Any], where: str = "attention") -> dict[str, Any]:
    """Return a section with its options validated, so that 64 and 64.0 are the same number of features."""
    kind = mixer_class(section, where)
    return {"kind": part_name(kind, __name__), **options_of(section, kind, "kind", where).model_dump()}
