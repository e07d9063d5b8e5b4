"""The contract of a positional scheme: how a model knows the positions of its tokens.

A scheme is a module of this package or of another one (poslab.config.registry), named by `scheme:` in its
YAML file in conf/pos. It has one public subclass of Scheme. The other keys of the YAML file are the fields of
its `options_class`. It overrides the hooks that it needs; those of the base class have no effect:

    embed(x, positions)            changes the input                                  sinusoidal, learned
    rotate(x, positions)           rotates queries and keys                           RoPE and its variants
    bias(distance)                 adds to the logits, by distance                    T5, ALiBi, KERPLE
    pairwise_bias(queries, keys)   adds to the logits, by both positions              FIRE
    log_gates(x)                   adds to the logits, by every token in between      FoX
    angles(x, positions)           rotates queries and keys, by the tokens' content   Selective RoPE, CARoPE
    content_bias(x, positions)     adds to the logits, by the query's content         Inkling
    score_bias(q, scores)          adds to the logits, by all logits of the query     CoPE, stick-breaking
    transitions(x), products(...)  change the products by every token in between      Wall, PaTH
    logit_features(x)              changes the factors of softmax attention's logits  YaRN, PoPE
    read_tokens(tokens)            reads the tokens, for the other hooks              BiPE
    place(length, stream)          chooses the tokens' positions                      randomised
    layer(index)                   returns the scheme of a layer                      schedule, FoX

It declares the properties that differ from the defaults:

    max_length          the longest sequence for which it is defined                  learned, xPos
    shift_invariant     False if logits depend on more than the distance              sinusoidal, FIRE
    length_dependent    True if more tokens after a token change its logits           dynamic NTK, randomised
    can_rotate          the widths that it can rotate                                 RoPE: even ones
    two_sided           True if it is also defined for keys after a query             RoPE, ALiBi
    untrained_from      the first distance that windows of L tokens do not train      T5
    tail()              where its bias becomes geometric, for linear attention        T5, ALiBi
    relative_rotation   the factor of its rotation at a distance, for the record      RoPE, PoPE
    rescale             whether a trained rotation can use other frequencies          RoPE, PoPE
    scales_queries      True if it multiplies the logits of softmax                   SSMax
    normalised          False if its logits are the logarithms of the weights         stick-breaking
    products_in_strips  True if flash can compute `products` a strip at a time        Wall
    decays_channels     True if `products` is sum_c q_ic k_jc exp(G_ic - G_jc), G `transitions`   Wall

Its parameters start like GPT-2's (GPT.initialise: matrices N(0, 0.02), vectors as constructed); `draw` sets
other initial values. They train without weight decay, at a multiple of the learning rate that its YAML file
sets: a scheme with parameters has LearnedOptions. The constructor raises ConfigError for settings that cannot
work, with a message that says what to choose instead.
The tests compare every scheme under every attention with plain sums over its own hooks. They check that it is
causal, that it has the properties that it declares, and that each of its options has an effect.

Shapes: B batch, T tokens, D model width, H heads, K head width, W width of the rotated vectors (K, or the
features of linear attention), V their width after it (W; 2 W under PoPE), C rotated pairs, Q queries, N keys
or distances, R rank.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Complex, Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad

from poslab.config.registry import find, options_of, part_name
from poslab.config.schema import ConfigError, Options, PairError
from poslab.model.rescaling import Rescaling


@dataclass(frozen=True)
class Geometry:
    """The sizes of the model that contains a scheme or an attention."""

    width: int  # D
    heads: int  # H
    context_length: int  # L, the training length in tokens; random positions are below it
    layers: int
    consecutive: bool = True  # positions are 0, 1, 2, ...; False: ascending with gaps
    causal: bool = True  # no token attends to later ones; False: every token attends to all
    window: int | None = None  # keys at this distance and further are hidden; None: no key is

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    def reach(self, length: int) -> int:
        """Return the number of distances that `length` tokens can have; random positions are below L."""
        return length if self.consecutive else self.context_length


@dataclass(frozen=True)
class Tail:
    """A bias that is geometric from `horizon` on: bias(t + 1) = bias(t) + log_decay for t >= horizon."""

    horizon: int  # tokens
    log_decay: Float[Tensor, "H"]


class ContentBias(NamedTuple):
    """The bias r_i . table[:, t] of query i on the key t < N tokens back, and 0 from N on."""

    r: Float[Tensor, "B H T R"]
    table: Float[Tensor, "R N"]

    def profiles(self, first: int, stop: int) -> Float[Tensor, "B H Q N+1"]:
        """Return the bias of queries [first, stop) by distance; the last column is for all from N on."""
        return pad(self.r[..., first:stop, :] @ self.table, (0, 1))

    def at(self, distance: Int[Tensor, "Q K"], first: int) -> Float[Tensor, "B H Q K"]:
        """Return the bias on keys at these distances, 0 or more, for the queries from number `first` on."""
        profiles = self.profiles(first, first + len(distance))
        places = distance.clamp(max=self.table.shape[1])
        return profiles.gather(-1, places.expand(*profiles.shape[:2], -1, -1))


class LearnedOptions(Options):
    """The options of a scheme with parameters of its own.

    Adam changes a parameter by about the learning rate per step, whatever its gradient. That suits weights of
    0.02, but is far too little for biases, which matter from about one nat on.
    """

    rate: float = Field(gt=0, description="factor on trainer.learning_rate for the scheme's own parameters")


class Scheme(nn.Module):
    """The base class of all positional schemes, which has no effect itself."""

    options_class: ClassVar[type[Options]] = Options
    two_sided: ClassVar[bool] = False
    scales_queries: ClassVar[bool] = False
    normalised: bool = True  # by softmax; False: weights are the exponentials of the logits
    products_in_strips: bool = False  # `products` of a few queries need no T x T matrix
    decays_channels: bool = False  # `products` decay by channel, which linear attention computes in O(L)

    def __init__(self, options: Options, geometry: Geometry) -> None:
        """Raise ConfigError if `options`, an instance of `options_class`, cannot work in this geometry."""
        super().__init__()
        self.options = options
        self.geometry = geometry
        if not geometry.causal and not self.two_sided:
            raise PairError(
                f"pos.scheme={self.name} is causal, but here tokens see later ones: choose a scheme for both "
                "sides, such as rope or alibi"
            )

    @property
    def name(self) -> str:
        """The scheme's `pos.scheme`: its module's name, or the full name for another package's module."""
        return part_name(type(self), __name__)

    def refuse_odd_heads(self) -> None:
        """Raise ConfigError if heads have an odd width, since a rotation needs pairs."""
        sizes = self.geometry
        if sizes.head_width % 2:
            raise ConfigError(
                f"pos.scheme={self.name} rotates pairs, but model.width={sizes.width} over model.heads="
                f"{sizes.heads} gives heads of odd width {sizes.head_width}: choose an even one"
            )

    @property
    def max_length(self) -> int | None:
        """The number of tokens in the longest sequence for which the scheme is defined; None: no limit."""
        return None

    @property
    def untrained_from(self) -> int | None:
        """The first distance, in tokens, with parameters that windows of L tokens never use.

        None: there is no such distance. These parameters keep their initial values.
        """
        firsts = [inside.untrained_from for inside in self._schemes_inside()]
        return min((first for first in firsts if first is not None), default=None)

    @property
    def shift_invariant(self) -> bool:
        """Whether the logit of a query and a key stays the same when both move by the same distance."""
        return True

    @property
    def length_dependent(self) -> bool:
        """Whether a window's logits depend on its length, so that they change when more tokens follow.

        If False, the losses of a window are the first losses of any longer window that starts at the same
        token, so evaluation runs only the longest.
        """
        return self.overrides("place")

    def overrides(self, hook: str) -> bool:
        """Return whether the scheme overrides `hook`, which has no effect in the base class."""
        return getattr(type(self), hook) is not getattr(Scheme, hook)

    def section(self) -> dict[str, Any]:
        """Return the `pos` section with validated options, so that 500 and 500.0 are the same base."""
        return {"scheme": self.name, **self.options.model_dump()}

    def rates(self) -> dict[nn.Parameter, float]:
        """Return the factor on the learning rate for each of the scheme's own parameters."""
        rates: dict[nn.Parameter, float] = {}
        for scheme in self.modules():  # a scheme inside another comes after it
            if isinstance(scheme, Scheme) and isinstance(scheme.options, LearnedOptions):
                rates |= dict.fromkeys(scheme.parameters(), scheme.options.rate)
        return rates

    def draw(self, stream: torch.Generator) -> None:
        """Set initial values other than GPT-2's, with random numbers only from `stream`."""

    def layer(self, index: int) -> "Scheme":
        """Return the scheme of a layer; `index` counts from 0."""
        return self

    def learned(self) -> list[nn.Parameter]:
        """Return the parameters that act here, including those of an inner scheme that is not a submodule."""
        return list(self.parameters())

    def place(self, length: int, stream: torch.Generator | None) -> Int[Tensor, "T"]:
        """Return the positions of a window's tokens, ascending.

        Random ones come from `stream`, which the seed and the training step set. It is None at evaluation.
        """
        return torch.arange(length)

    def check_vocabulary(self, entries: int) -> None:
        """Raise ConfigError if the settings name tokens that are not in a vocabulary of `entries` tokens."""
        for inside in self._schemes_inside():
            inside.check_vocabulary(entries)

    def read_tokens(self, tokens: Int[Tensor, "B T"]) -> None:
        """Read what the hooks below need from the tokens of a forward pass; inner schemes do so, too."""
        for inside in self._schemes_inside():
            inside.read_tokens(tokens)

    def _schemes_inside(self) -> "list[Scheme]":
        return [module for module in self.modules() if isinstance(module, Scheme) and module is not self]

    def embed(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        """Return the input of the first layer, from the token embeddings `x`."""
        return x

    def logit_features(self, x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        """Return the queries or keys that softmax attention rotates and multiplies.

        Linear attention applies its feature map instead.
        """
        return x

    def rotate(self, x: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B H T W"]:
        """Rotate queries or keys by their positions, both in the same way. `can_rotate` says which widths."""
        return x

    def rotate_queries(
        self, q: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T V"]:
        """Rotate queries. Override this and `rotate_keys` if queries and keys rotate differently."""
        return self.rotate(q, positions)

    def rotate_keys(
        self, k: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T V"]:
        return self.rotate(k, positions)

    def can_rotate(self, width: int) -> bool:
        """Return whether vectors of this width can be rotated; `angles` are for the pairs of a head."""
        return width == self.geometry.head_width or not self.overrides("angles")

    def relative_rotation(self, distance: Int[Tensor, "N"]) -> Complex[Tensor, "C N"] | None:
        """Return the factor on the product of a query's and a key's pair by distance in tokens, complex128.

        It is for the training length. None means no rotation, or one that depends on more than the distance.
        """
        return None

    def rescale(self, rescaling: Rescaling | None) -> bool:
        """Rotate by other frequencies from now on; None restores the scheme's own.

        Return whether the scheme has frequencies at all.
        """
        return False

    def bias(self, distance: Int[Tensor, "N"]) -> Float[Tensor, "H N"] | None:
        """Return the bias on the logit of a query and a key `distance` >= 0 tokens before it.

        In a two-sided scheme, it is also for a key `distance` tokens after the query, unless `bias_after` is
        overridden. Return None (never a tensor of zeros) if the scheme has no bias by distance.
        """
        return None

    def bias_after(self, distance: Int[Tensor, "N"]) -> Float[Tensor, "H N"] | None:
        """Return the bias on the logit of a query and a key `distance` > 0 tokens after it.

        Override it in a two-sided scheme with an asymmetric bias. It needs the same tail.
        """
        return self.bias(distance)

    def bias_within(
        self, reach: int, device: torch.device | None = None, after: bool = False
    ) -> Float[Tensor, "H reach"] | None:
        """Return the bias at distances below `reach`, -inf outside the window; None if it is 0 everywhere."""
        distance = torch.arange(reach, device=device)
        bias, window = self.bias(distance), self.geometry.window
        if after and bias is not None and (bias_after := self.bias_after(distance)) is not None:
            bias = torch.where(distance > 0, bias_after, bias)  # a token itself is not after itself
        if window is None or window >= reach:
            return bias
        if bias is None:
            bias = torch.zeros(self.geometry.heads, reach, device=device)
        return bias.masked_fill(distance >= window, -torch.inf)

    def pairwise_bias(
        self, queries: Int[Tensor, "Q"], keys: Int[Tensor, "N"]
    ) -> Float[Tensor, "H Q N"] | None:
        """Return the bias on the logits of queries and keys at these positions.

        If the geometry is causal, the values for keys ahead do not matter. Override this only if the bias
        depends on more than the distance.
        """
        distance = self.distances(queries, keys)
        bias = self.bias(distance.flatten())
        if self.overrides("bias_after") and not self.geometry.causal:
            after = self.bias_after(distance.flatten())
            if bias is not None and after is not None:
                bias = torch.where((keys > queries[:, None]).flatten(), after, bias)
        return None if bias is None else bias.reshape(-1, *distance.shape)

    def distances(self, queries: Int[Tensor, "Q"], keys: Int[Tensor, "N"]) -> Int[Tensor, "Q N"]:
        """Return the tokens from each query back to each key, 0 for keys ahead; if not causal, |i - j|."""
        back = queries[:, None] - keys
        return back.clamp(min=0) if self.geometry.causal else back.abs()

    @property
    def by_distance(self) -> bool:
        """Whether the scheme's bias depends only on the distance, and `bias` is all of it."""
        return not any(map(self.overrides, ("pairwise_bias", "content_bias")))

    @property
    def by_content(self) -> bool:
        """Whether the scheme reads the input of the layer."""
        return any(map(self.overrides, ("log_gates", "angles", "content_bias", "transitions")))

    def log_gates(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T"] | None:
        """Return log f_t <= 0, added to the logit of every query at or after token t and every key before t.

        None means no gates. `x` is the input of this layer's projections to queries and keys.
        """
        return None

    def angles(
        self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T K/2"] | None:
        """Return the angles in radians by which each pair (c, c + K/2) of a token's query and key rotates.

        A logit depends on the difference of two tokens' angles. They apply after `rotate`, and in linear
        attention only in the numerator. None means no angles. `x` is the input of this layer's projections,
        often under autocast, which is too imprecise for sums over tokens.
        """
        return None

    def content_bias(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> ContentBias | None:
        """Return each query's own bias by distance; None means no bias. `x` is as for `angles`."""
        return None

    def score_bias(
        self, q: Float[Tensor, "B H Q K"], scores: Float[Tensor, "B H Q T"]
    ) -> Float[Tensor, "B H Q T"] | None:
        """Return a term to add to softmax's logits, computed from the queries and all of their logits.

        `scores` are -inf for hidden keys, for which any number may be returned. Only an attention that forms
        all scores supports this hook. None means no term.
        """
        return None

    def transitions(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T K"] | None:
        """Return the vectors that `products` reads for each token, or None. `x` is as for `angles`."""
        return None

    def products(
        self,
        q: Float[Tensor, "B H Q W"],
        k: Float[Tensor, "B H N W"],
        transitions: Float[Tensor, "B H N K"] | None,
        first: int,
    ) -> Float[Tensor, "B H Q N"]:
        """Return the products of queries and keys in softmax's logits; any finite numbers for keys ahead.

        `transitions` are those of the keys' tokens; the queries are these tokens from number `first` on.
        Linear attention does not support this hook, unless the scheme `decays_channels`.
        """
        return q @ k.mT

    def tail(self) -> Tail | None:
        """Return where the bias becomes geometric; None if nowhere, or if the scheme does not declare it."""
        if self.overrides("bias") or not self.by_distance:
            return None
        return Tail(0, torch.zeros(self.geometry.heads))


def build_scheme(section: Mapping[str, Any], geometry: Geometry, where: str = "pos") -> Scheme:
    """Build the scheme that a section of the configuration describes; `where` is the section's dotted name.

    Raise ConfigError.
    """
    kind = find(section.get("scheme"), Scheme, __name__, f"{where}.scheme")
    return kind(options_of(section, kind, "scheme", where), geometry)
