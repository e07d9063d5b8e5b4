"""The contract of a positional scheme, and how one is found.

A scheme is one module here, named by `scheme:` in its YAML file in conf/pos, with one public subclass of
Scheme. It acts through hooks with neutral defaults and overrides those it needs:

    embed(x, positions)            adds to the input                    sinusoidal, learned
    rotate(x, positions)           turns queries and keys               RoPE and its kin
    bias(distance)                 adds to the logits, by distance      T5, ALiBi, KERPLE
    pairwise_bias(queries, keys)   adds to the logits, by both places   FIRE
    log_gates(x)                   what a token keeps of the past       FoX

and, around these, `place` (where tokens stand: randomised positions), `layer` (what acts in a layer:
schedules) and `logit_features` (what softmax attention multiplies: YaRN, PoPE).

Shapes: B batch, T tokens, D model width, H heads, K head width, W width of what is turned (K, or the features
of linear attention).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor, nn

from poslab.config.registry import find, options_of
from poslab.config.schema import Options
from poslab.model.rescaling import Rescaling


@dataclass(frozen=True)
class Geometry:
    """What a scheme or an attention may know of the model it works in."""

    width: int
    heads: int
    context_length: int  # L, the length that the model trains at
    layers: int
    consecutive: bool = True  # whether tokens stand at 0, 1, 2, ...; else ascending, below context_length

    @property
    def head_width(self) -> int:
        return self.width // self.heads


@dataclass(frozen=True)
class Tail:
    """A bias past `horizon`: bias(t + 1) = bias(t) + log_decay for every t >= horizon."""

    horizon: int
    log_decay: Float[Tensor, "H"]


class Scheme(nn.Module):
    """A positional scheme without effect: what every other one starts from."""

    options_class: ClassVar[type[Options]]

    def __init__(self, options: Options, geometry: Geometry) -> None:
        super().__init__()
        self.options = options
        self.geometry = geometry

    @property
    def name(self) -> str:
        """The name of its module, as `pos.scheme` says it."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def max_length(self) -> int | None:
        """The longest sequence that the scheme has a value for; None where there is no limit."""
        return None

    @property
    def shift_invariant(self) -> bool:
        """Whether the logits of a query and a key stay when both move on by as many tokens."""
        return True

    def section(self) -> dict[str, Any]:
        """The `pos` section that describes this scheme, in one spelling: 500 and 500.0 are one base."""
        return {"scheme": self.name, **self.options.model_dump()}

    def draw(self, stream: torch.Generator) -> None:
        """Set initial values other than GPT-2's (matrices N(0, 0.02), vectors as constructed)."""

    def layer(self, index: int) -> "Scheme":
        """What acts in the layer of that index, counted from 0."""
        return self

    def place(self, length: int, stream: torch.Generator | None) -> Int[Tensor, "T"]:
        """Where the tokens of a window stand, ascending. `stream` is there while training alone."""
        return torch.arange(length)

    def embed(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        return x

    def logit_features(self, x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        """What softmax attention turns and multiplies; linear attention has its feature map in this place."""
        return x

    def rotate(self, x: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B H T W"]:
        return x

    def rotate_queries(
        self, q: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T V"]:
        return self.rotate(q, positions)

    def rotate_keys(
        self, k: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T V"]:
        return self.rotate(k, positions)

    def turns(self, width: int) -> bool:
        """Whether vectors of that width can be rotated."""
        return True

    def relative_turns(self, distance: Int[Tensor, "N"]) -> Complex[Tensor, "C N"] | None:
        """What the product of each of C pairs of a query and a key is multiplied by at a distance in tokens.

        At the training length, complex128. None where nothing turns or not by the distance alone.
        """
        return None

    def rescale(self, rescaling: Rescaling | None) -> bool:
        """Turn by other frequencies from now on, None: by its own again; whether there are any."""
        return False

    def bias(self, distance: Int[Tensor, "N"]) -> Float[Tensor, "H N"] | None:
        """What the logit of a query and a key gains when the key lies `distance` >= 0 back.

        None (never a tensor of zeros) where the scheme has no bias by distance.
        """
        return None

    def pairwise_bias(
        self, queries: Int[Tensor, "Q"], keys: Int[Tensor, "N"]
    ) -> Float[Tensor, "H Q N"] | None:
        """The bias of every key at its place on every query at its; where the key lies ahead, any number.

        A scheme overrides this one only where its bias depends on more than the distance.
        """
        distance = (queries[:, None] - keys).clamp(min=0)
        bias = self.bias(distance.flatten())
        return None if bias is None else bias.reshape(-1, *distance.shape)

    @property
    def by_distance(self) -> bool:
        """Whether all that the scheme adds to the logits is `bias`."""
        return type(self).pairwise_bias is Scheme.pairwise_bias

    def log_gates(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T"] | None:
        """log f_t <= 0: every logit of a query past token t on a key before t gains it. None: no gates.

        `x` is what the queries and keys of this layer are made from.
        """
        return None

    def tail(self) -> Tail | None:
        """Where the bias becomes geometric; None where it never does, or where a scheme does not say."""
        if type(self).bias is not Scheme.bias or not self.by_distance:
            return None
        return Tail(0, torch.zeros(self.geometry.heads))


def build_scheme(section: Mapping[str, Any], geometry: Geometry, where: str = "pos") -> Scheme:
    """The scheme that a section of the configuration describes, `where` its dotted name. Raises
    ConfigError."""
    kind = find(section.get("scheme"), Scheme, __name__, f"{where}.scheme")
    return kind(options_of(section, kind, "scheme", where), geometry)
