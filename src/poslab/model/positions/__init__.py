"""The contract of a positional scheme: how a model knows where its tokens stand.

A scheme is one module of this package, or of another (poslab.config.registry), named by `scheme:` in its YAML
file in conf/pos, with one public subclass of Scheme. The other keys of the YAML file are the fields of its
`options_class`. It overrides the hooks that it needs; as they stand here, none has an effect:

    embed(x, positions)            changes the input                                  sinusoidal, learned
    rotate(x, positions)           turns queries and keys                             RoPE and its kin
    bias(distance)                 is added to the logits, by distance                T5, ALiBi, KERPLE
    pairwise_bias(queries, keys)   is added to the logits, by both positions          FIRE
    log_gates(x)                   is added to the logits, by every token in between  FoX
    logit_features(x)              changes what softmax attention multiplies          YaRN, PoPE
    place(length, stream)          chooses the tokens' positions                      randomised
    layer(index)                   gives each layer a scheme of its own               schedule, FoX

It says what it is where that differs from the defaults:

    max_length       the longest sequence that it is defined for                      learned, xPos
    shift_invariant  False where logits depend on more than the distance              sinusoidal, FIRE
    length_dependent True where more tokens after a token change its logits         dynamic NTK, randomised
    can_rotate       the widths that it can rotate                                    RoPE: even ones
    two_sided        True where it also means something for keys after a query        RoPE, ALiBi
    tail()           where its bias becomes geometric, which linear attention needs   T5, ALiBi
    relative_rotation what its rotation does at a distance, for the record             RoPE, PoPE
    rescale          whether a trained rotation can turn by other frequencies         RoPE, PoPE

Its parameters start as GPT-2's do (GPT.initialise: matrices N(0, 0.02), vectors as constructed); `draw` sets
any others. They train without weight decay, at a multiple of the learning rate that its YAML file says: a
scheme with parameters has LearnedOptions. Settings that cannot work raise ConfigError in the constructor and
say what to choose instead.
The tests compare every scheme with its own hooks in plain sums under every attention, and check that it is
causal, is what it says it is, and that each of its options has an effect.

Shapes: B batch, T tokens, D model width, H heads, K head width, W width of what is rotated (K, or the
features of linear attention), V its width afterwards (W; 2 W under PoPE), C rotated pairs, Q queries, N keys
or distances.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Complex, Float, Int
from pydantic import Field
from torch import Tensor, nn

from poslab.config.registry import find, options_of, part_name
from poslab.config.schema import Options, PairError
from poslab.model.rescaling import Rescaling


@dataclass(frozen=True)
class Geometry:
    """The sizes of the model that a scheme or an attention works in."""

    width: int  # D
    heads: int  # H
    context_length: int  # L, the training length in tokens; positions that are drawn lie below it
    layers: int
    consecutive: bool = True  # positions are 0, 1, 2, ...; False: ascending with gaps
    causal: bool = True  # no token sees later ones; False: each sees all

    @property
    def head_width(self) -> int:
        return self.width // self.heads


@dataclass(frozen=True)
class Tail:
    """A bias geometric from `horizon` on: bias(t + 1) = bias(t) + log_decay for every t >= horizon."""

    horizon: int  # tokens
    log_decay: Float[Tensor, "H"]


class LearnedOptions(Options):
    """The options of a scheme that has parameters of its own.

    Adam moves a parameter by about the learning rate a step, whatever its gradient: right for weights of
    0.02, and far too little for biases that matter from one nat on.
    """

    rate: float = Field(gt=0, description="times trainer.learning_rate, for the scheme's own parameters")


class Scheme(nn.Module):
    """A positional scheme without effect: what every other one starts from."""

    options_class: ClassVar[type[Options]] = Options
    two_sided: ClassVar[bool] = False

    def __init__(self, options: Options, geometry: Geometry) -> None:
        """`options` is of `options_class`. Raises ConfigError where they cannot work in this geometry."""
        super().__init__()
        self.options = options
        self.geometry = geometry
        if not geometry.causal and not self.two_sided:
            raise PairError(
                f"pos.scheme={self.name} is causal, and here tokens see later ones: choose a scheme for both "
                "sides, such as rope or alibi"
            )

    @property
    def name(self) -> str:
        """Its `pos.scheme`: the name of its module, of one in another package the full name."""
        return part_name(type(self), __name__)

    @property
    def max_length(self) -> int | None:
        """Tokens in the longest sequence that the scheme is defined for; None: no limit."""
        return None

    @property
    def shift_invariant(self) -> bool:
        """Whether the logit of a query and a key stays the same when both move by as many tokens."""
        return True

    @property
    def length_dependent(self) -> bool:
        """Whether a window's logits change when more tokens follow it, by the window's length alone.

        If False, the losses of a window are the first losses of any longer window that starts at the same
        token, so evaluation runs the longest only.
        """
        return type(self).place is not Scheme.place

    def section(self) -> dict[str, Any]:
        """The `pos` section of this scheme as its checked options spell it: 500 and 500.0 are one base."""
        return {"scheme": self.name, **self.options.model_dump()}

    def rates(self) -> dict[nn.Parameter, float]:
        """The factor on the learning rate of each of the scheme's own parameters."""
        rates: dict[nn.Parameter, float] = {}
        for scheme in self.modules():  # one inside another scheme comes after it
            if isinstance(scheme, Scheme) and isinstance(scheme.options, LearnedOptions):
                rates |= dict.fromkeys(scheme.parameters(), scheme.options.rate)
        return rates

    def draw(self, stream: torch.Generator) -> None:
        """Set initial values other than GPT-2's, from `stream` alone."""

    def layer(self, index: int) -> "Scheme":
        """The scheme whose hooks act in a layer; `index` counts from 0."""
        return self

    def place(self, length: int, stream: torch.Generator | None) -> Int[Tensor, "T"]:
        """The positions of a window's tokens, ascending.

        A training step draws from `stream`, which the seed and the step decide; None: at evaluation.
        """
        return torch.arange(length)

    def embed(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        """The input of the first layer, from the token embeddings `x`."""
        return x

    def logit_features(self, x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        """The queries or keys that softmax attention rotates and multiplies.

        Linear attention has its feature map in this place.
        """
        return x

    def rotate(self, x: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B H T W"]:
        """Queries or keys turned by their positions, alike; of any width that `can_rotate` accepts."""
        return x

    def rotate_queries(
        self, q: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T V"]:
        """Overridden, with `rotate_keys`, where queries and keys turn differently."""
        return self.rotate(q, positions)

    def rotate_keys(
        self, k: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T V"]:
        return self.rotate(k, positions)

    def can_rotate(self, width: int) -> bool:
        """Whether vectors of this width can be rotated."""
        return True

    def relative_rotation(self, distance: Int[Tensor, "N"]) -> Complex[Tensor, "C N"] | None:
        """The factor on the product of each pair of a query and a key at each distance in tokens, complex128.

        At the training length. None where nothing is rotated, or not by the distance alone.
        """
        return None

    def rescale(self, rescaling: Rescaling | None) -> bool:
        """Rotate by other frequencies from now on; None: by the scheme's own again.

        Returns whether the scheme has frequencies at all.
        """
        return False

    def bias(self, distance: Int[Tensor, "N"]) -> Float[Tensor, "H N"] | None:
        """What is added to the logit of a query and a key that lies `distance` >= 0 tokens before it.

        Of a scheme for both sides, as many tokens after it too. None (never a tensor of zeros) where the
        scheme has no bias by distance.
        """
        return None

    def pairwise_bias(
        self, queries: Int[Tensor, "Q"], keys: Int[Tensor, "N"]
    ) -> Float[Tensor, "H Q N"] | None:
        """What is added to the logits of queries and keys at these positions.

        Any number for keys ahead where the geometry is causal. Overridden only where the bias depends on more
        than the distance.
        """
        distance = self.distances(queries, keys)
        bias = self.bias(distance.flatten())
        return None if bias is None else bias.reshape(-1, *distance.shape)

    def distances(self, queries: Int[Tensor, "Q"], keys: Int[Tensor, "N"]) -> Int[Tensor, "Q N"]:
        """Tokens from each query back to each key, 0 for keys ahead; to either side if nothing is causal."""
        back = queries[:, None] - keys
        return back.clamp(min=0) if self.geometry.causal else back.abs()

    @property
    def by_distance(self) -> bool:
        """Whether the scheme's bias depends on the distance alone, and `bias` is all of it."""
        return type(self).pairwise_bias is Scheme.pairwise_bias

    def log_gates(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T"] | None:
        """log f_t <= 0, added to the logit of every query from token t on and every key before t.

        None: no gates. `x` is what this layer's queries and keys are projected from.
        """
        return None

    def tail(self) -> Tail | None:
        """From where on the bias is geometric; None: nowhere, or the scheme does not say."""
        if type(self).bias is not Scheme.bias or not self.by_distance:
            return None
        return Tail(0, torch.zeros(self.geometry.heads))


def build_scheme(section: Mapping[str, Any], geometry: Geometry, where: str = "pos") -> Scheme:
    """The scheme that a section of the configuration describes; `where` is the section's dotted name.

    Raises ConfigError.
    """
    kind = find(section.get("scheme"), Scheme, __name__, f"{where}.scheme")
    return kind(options_of(section, kind, "scheme", where), geometry)
