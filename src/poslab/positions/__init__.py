"""The contract of a positional scheme, and how one is found.

A scheme is one module here, named by `scheme:` in its YAML file in conf/pos, with one subclass of Scheme.
It acts through three hooks with neutral defaults and overrides the one it needs:

    embed(x, positions)   adds to the input             sinusoidal, learned
    rotate(x, positions)  turns queries and keys        RoPE
    bias(distance)        adds to the logits            T5, ALiBi

Shapes: B batch, T tokens, D model width, H heads, K head width. Positions count from 0 and are consecutive.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poslab.config import Options
from poslab.registry import find, options_of


@dataclass(frozen=True)
class Geometry:
    """What a scheme or an attention may know of the model it works in."""

    width: int
    heads: int
    context_length: int  # L, the length that the model trains at

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
    def max_length(self) -> int | None:
        """The longest sequence that the scheme has a value for; None where there is no limit."""
        return None

    def embed(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        return x

    def rotate(self, x: Float[Tensor, "B H T K"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B H T K"]:
        return x

    def bias(self, distance: Int[Tensor, "N"]) -> Float[Tensor, "H N"] | None:
        """What the logit of a query and a key gains when the key lies `distance` >= 0 tokens back.

        None (never a tensor of zeros) where the scheme has no bias.
        """
        return None

    def tail(self) -> Tail | None:
        """Where the bias becomes geometric; None where it never does, or where a scheme does not say."""
        if type(self).bias is not Scheme.bias:
            return None
        return Tail(0, torch.zeros(self.geometry.heads))


def build_scheme(section: Mapping[str, Any], geometry: Geometry) -> Scheme:
    """The scheme that the `pos` section of a configuration describes."""
    kind = find(section.get("scheme"), Scheme, __name__, "pos.scheme")
    return kind(options_of(section, kind, "scheme", "pos"), geometry)
