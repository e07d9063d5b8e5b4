"""What schemes share that have a part of their own for each layer."""

from typing import ClassVar

from torch import nn

from poslab.config.schema import Options
from poslab.model.positions import Geometry, Scheme


class LayeredScheme(Scheme):
    """A scheme with a part of its own for each layer."""

    layer_class: ClassVar[type[Scheme]]
    parts: ClassVar[str]  # the attribute with the layers' parts, which names their parameters

    def __init__(self, options: Options, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        layers = (self.layer_class(options, geometry) for _ in range(geometry.layers))
        self.add_module(self.parts, nn.ModuleList(layers))

    def layer(self, index: int) -> Scheme:
        layer = getattr(self, self.parts)[index]
        assert isinstance(layer, Scheme)
        return layer
