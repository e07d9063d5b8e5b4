"""Schemes that wrap another scheme, such as those that multiply the logits of each query.

Shapes: B batch, H heads, T tokens, D model width, W and V widths before and after the rotation.
"""

from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from poslab.config.schema import ConfigError, Options
from poslab.model.positions import ContentBias, Geometry, Scheme, build_scheme


def _hook_of(part: str, hook: str) -> Any:
    """Return a method that calls `hook` of the scheme in the attribute `part`."""
    return lambda self, *args, **kwargs: getattr(getattr(self, part), hook)(*args, **kwargs)


class ScaledLayer(Scheme):
    """The scheme of one layer, with its queries multiplied by `factor`."""

    scales_queries = True
    shift_invariant = False
    logit_features = _hook_of("inside", "logit_features")
    rotate_keys = _hook_of("inside", "rotate_keys")
    can_rotate = _hook_of("inside", "can_rotate")
    relative_rotation = _hook_of("inside", "relative_rotation")
    bias = _hook_of("inside", "bias")
    pairwise_bias = _hook_of("inside", "pairwise_bias")
    log_gates = _hook_of("inside", "log_gates")
    angles = _hook_of("inside", "angles")
    score_bias = _hook_of("inside", "score_bias")
    transitions = _hook_of("inside", "transitions")
    products = _hook_of("inside", "products")
    tail = _hook_of("inside", "tail")

    def __init__(self, options: Options, inside: Scheme) -> None:
        super().__init__(options, inside.geometry)
        self.__dict__["inside"] = inside  # not a submodule: its parameters belong to Scaled.of
        self.inside: Scheme
        self.normalised = inside.normalised
        self.products_in_strips = inside.products_in_strips

    def learned(self) -> list[nn.Parameter]:
        return [*super().learned(), *self.inside.learned()]

    def factor(self, positions: Int[Tensor, "T"]) -> Float[Tensor, "#H T"]:
        """Return the factor on the queries at these positions."""
        raise NotImplementedError

    def rotate_queries(
        self, q: Float[Tensor, "B H T W"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T V"]:
        factor = self.factor(positions).to(torch.promote_types(q.dtype, torch.float32))
        return self.inside.rotate_queries((q * factor[..., None]).to(q.dtype), positions)

    @property
    def length_dependent(self) -> bool:
        return self.inside.length_dependent

    @property
    def by_distance(self) -> bool:
        return self.inside.by_distance

    def overrides(self, hook: str) -> bool:
        return hook == "rotate_queries" or self.inside.overrides(hook)

    def content_bias(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> ContentBias | None:
        """Return the inner scheme's bias, multiplied like the products (InklingAttention in transformers)."""
        bias = self.inside.content_bias(x, positions)
        if bias is None:
            return None
        return bias._replace(r=bias.r * self.factor(positions).to(bias.r.dtype)[..., None])


class Around(Scheme):
    """A scheme that wraps another one, `of`. Hooks on the input and the frequencies are those of `of`."""

    shift_invariant = False
    of: Scheme
    embed = _hook_of("of", "embed")
    rescale = _hook_of("of", "rescale")

    def section(self) -> dict[str, Any]:
        return {**super().section(), "of": self.of.section()}


class AroundOptions(Options):
    of: dict[str, Any] = Field(description="the section of the wrapped scheme; it gets the scaled queries")


class Scaled(Around):
    """A scheme that multiplies the queries of each layer by the factor of its `layer_class`."""

    layer_class: ClassVar[type[ScaledLayer]]
    scales_queries = True
    place = _hook_of("of", "place")

    def __init__(self, options: AroundOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        self.of = build_scheme(options.of, geometry, "pos.of")
        if not geometry.consecutive or self.of.overrides("place"):
            raise ConfigError(
                f"pos.scheme={self.name} counts the tokens before a query, but random positions do not "
                "give that number: choose one of the two"
            )
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
    def length_dependent(self) -> bool:
        return self.of.length_dependent

    def overrides(self, hook: str) -> bool:
        return hook == "rotate_queries" or self.of.overrides(hook)
