"""Helpers for schemes and mixers with a separate part for each layer."""

from collections.abc import Collection, Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from poslab.config.schema import ConfigError, Options
from poslab.model.positions import Geometry, Scheme


class LayeredScheme(Scheme):
    """A scheme with a separate part for each layer."""

    layer_class: ClassVar[type[Scheme]]
    parts: ClassVar[str]  # the attribute that holds the layers' parts; their parameters' names start with it

    def __init__(self, options: Options, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        layers = (self.layer_class(options, geometry) for _ in range(geometry.layers))
        self.add_module(self.parts, nn.ModuleList(layers))

    def layer(self, index: int) -> Scheme:
        layer = getattr(self, self.parts)[index]
        assert isinstance(layer, Scheme)
        return layer


def wide_linear(
    x: Float[Tensor, "B T D"], weight: Float[Tensor, "N D"], bias: Float[Tensor, "N"] | None = None
) -> Float[Tensor, "B T N"]:
    """Return x W^T + b in float32 or wider, even under autocast: sums over tokens need the precision."""
    wide = torch.promote_types(x.dtype, torch.float32)
    with torch.autocast(x.device.type, enabled=False):
        return linear(x.to(wide), weight.to(wide), None if bias is None else bias.to(wide))


def names_by_layer(
    cycle: Sequence[str], entries: Collection[str], layers: int, group: str, setting: str
) -> list[str]:
    """Return the name of each layer's entry: `cycle`, the setting `layers` of `group`, repeated.

    `setting` names the setting with `entries`. Raise ConfigError for a name that is not one of `entries`,
    and for an entry that no layer uses.
    """
    names = [cycle[index % len(cycle)] for index in range(layers)]
    if unknown := [name for name in cycle if name not in entries]:
        raise ConfigError(f"{group}.layers names {unknown[0]!r}; {group}.{setting} has {', '.join(entries)}")
    if unused := [name for name in entries if name not in names]:
        raise ConfigError(
            f"{group}.{setting} has {unused[0]!r}, which no layer uses: {group}.layers={cycle} over "
            f"model.layers={layers}; choose shorter {group}.layers or more layers"
        )
    return names
