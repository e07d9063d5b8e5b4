"""The contract of an attention, and how one is found.

An attention is one module here, named by `kind:` in its YAML file in conf/attention, with one subclass of
Attention. It calls a scheme's hooks where its mathematics wants them, and knows no scheme by name.

Shapes: B batch, H heads, T tokens, K head width.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poslab.config import Options
from poslab.positions import Geometry, Scheme
from poslab.registry import find, options_of


class Attention(nn.Module):
    """Causal attention of one layer."""

    options_class: ClassVar[type[Options]]

    def __init__(self, options: Options, geometry: Geometry, scheme: Scheme) -> None:
        """Raises ConfigError, saying what to choose instead, when the scheme cannot work here."""
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
    ) -> Float[Tensor, "B H T K"]:
        raise NotImplementedError


def distances(query_start: int, query_stop: int, device: torch.device) -> Int[Tensor, "Q N"]:
    """i - j for queries i of [query_start, query_stop) and keys j of [0, query_stop); < 0 is masked."""
    queries = torch.arange(query_start, query_stop, device=device)
    return queries[:, None] - torch.arange(query_stop, device=device)


def build_attention(section: Mapping[str, Any], geometry: Geometry, scheme: Scheme) -> Attention:
    """The attention that the `attention` section of a configuration describes, for one layer."""
    kind = find(section.get("kind"), Attention, __name__, "attention.kind")
    return kind(options_of(section, kind, "kind", "attention"), geometry, scheme)
