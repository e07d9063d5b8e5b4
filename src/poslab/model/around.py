"""A scheme around another one, that multiplies the logits of each query.

Shapes: B batch, H heads, T tokens, D model width, K head width, W and V widths before and after the rotation,
C rotated pairs, Q queries, N keys or distances.
"""

from typing import Any, ClassVar

import torch
from jaxtyping import Complex, Float, Int
from pydantic import Field
from torch import Tensor, nn

from poslab.config.schema import Options
from poslab.model.positions import ContentBias, Geometry, Scheme, Tail, build_scheme
from poslab.model.rescaling import Rescaling


class ScaledLayer(Scheme):
    """The scheme of one layer, with queries times `factor`."""

    scales_queries = True

    def __init__(self, options: Options, inside: Scheme) -> None:
        super().__init__(options, inside.geometry)
        self.__dict__["inside"] = inside  # no submodule: its parameters are those of Scaled.of
        self.inside: Scheme
        self.normalised = inside.normalised
        self.products_in_strips = inside.products_in_strips

    def factor(self, positions: Int[Tensor, "T"]) -> Float[Tensor, "#H T"]:
        """Return what multiplies the logits of the queries at these positions."""
        raise NotImplementedError

    def rotate_queries(
        self, q: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T V"]:
        factor = self.factor(positions).to(torch.promote_types(q.dtype, torch.float32))
        return self.inside.rotate_queries((q * factor[..., None]).to(q.dtype), positions)

    def rotate_keys(
        self, k: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T V"]:
        return self.inside.rotate_keys(k, positions)

    @property
    def shift_invariant(self) -> bool:
        return False

    @property
    def length_dependent(self) -> bool:
        return self.inside.length_dependent

    @property
    def by_distance(self) -> bool:
        return self.inside.by_distance

    def overrides(self, hook: str) -> bool:
        return hook == "rotate_queries" or self.inside.overrides(hook)

    def logit_features(self, x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        return self.inside.logit_features(x)

    def can_rotate(self, width: int) -> bool:
        return self.inside.can_rotate(width)

    def relative_rotation(self, distance: Int[Tensor, "N"]) -> Complex[Tensor, "C N"] | None:
        return self.inside.relative_rotation(distance)

    def bias(self, distance: Int[Tensor, "N"]) -> Float[Tensor, "H N"] | None:
        return self.inside.bias(distance)

    def pairwise_bias(
        self, queries: Int[Tensor, "Q"], keys: Int[Tensor, "N"]
    ) -> Float[Tensor, "H Q N"] | None:
        return self.inside.pairwise_bias(queries, keys)

    def log_gates(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T"] | None:
        return self.inside.log_gates(x)

    def angles(
        self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T K/2"] | None:
        return self.inside.angles(x, positions)

    def content_bias(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> ContentBias | None:
        """Return the bias inside, multiplied as the products are (InklingAttention in transformers)."""
        bias = self.inside.content_bias(x, positions)
        if bias is None:
            return None
        return bias._replace(r=bias.r * self.factor(positions).to(bias.r.dtype)[..., None])

    def score_bias(
        self, q: Float[Tensor, "B H Q K"], scores: Float[Tensor, "B H Q T"]
    ) -> Float[Tensor, "B H Q T"] | None:
        return self.inside.score_bias(q, scores)

    def transitions(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T K"] | None:
        return self.inside.transitions(x)

    def products(
        self,
        q: Float[Tensor, "B H Q W"],
        k: Float[Tensor, "B H N W"],
        transitions: Float[Tensor, "B H N K"] | None,
        first: int,
    ) -> Float[Tensor, "B H Q N"]:
        return self.inside.products(q, k, transitions, first)

    def tail(self) -> Tail | None:
        return self.inside.tail()


class AroundOptions(Options):
    of: dict[str, Any] = Field(description="the section of the scheme whose logits are multiplied")


class Scaled(Scheme):
    """A scheme whose layers multiply their queries; `layer_class` says by what."""

    layer_class: ClassVar[type[ScaledLayer]]
    scales_queries = True

    def __init__(self, options: AroundOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        self.of = build_scheme(options.of, geometry, "pos.of")
        layers = (self.of.layer(index) for index in range(geometry.layers))
        self.scaled = nn.ModuleList(self.layer_class(options, layer) for layer in layers)

    def layer(self, index: int) -> Scheme:
        layer = self.scaled[index]
        assert isinstance(layer, Scheme)
        return layer

    @property
    def max_length(self) -> int | None:
        return self.of.max_length

    @property
    def shift_invariant(self) -> bool:
        return False

    @property
    def length_dependent(self) -> bool:
        return self.of.length_dependent

    def overrides(self, hook: str) -> bool:
        return hook == "rotate_queries" or self.of.overrides(hook)

    def section(self) -> dict[str, Any]:
        return {**super().section(), "of": self.of.section()}

    def place(self, length: int, stream: torch.Generator | None) -> Int[Tensor, "T"]:
        return self.of.place(length, stream)

    def embed(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        return self.of.embed(x, positions)

    def rescale(self, rescaling: Rescaling | None) -> bool:
        return self.of.rescale(rescaling)
