"""A scheme and a window for each layer, such as RoPE in all but every fourth (SmolLM3; Llama 4's iRoPE).

`layers` names an entry of `schemes` for each layer, and is repeated until all layers have one. An entry is
the section of a scheme that acts inside a layer. With `window: w` beside the scheme's settings, a token of
these layers sees only the w tokens up to itself (Command A, arXiv 2504.00698; Gemma 3, 2503.19786). A w
below 1 is a share of the training length L; records have the number of tokens.
"""

from dataclasses import replace
from typing import Any

from pydantic import Field
from torch import nn

from poslab.config.schema import ConfigError, Options
from poslab.model.layered import names_by_layer
from poslab.model.positions import Geometry, Scheme, build_scheme
from poslab.model.rescaling import Rescaling


class ScheduleOptions(Options):
    layers: list[str] = Field(
        min_length=1, description="for each layer, the name of its scheme in schemes; repeated over layers"
    )
    schemes: dict[str, dict[str, Any]] = Field(
        description="the section of each scheme, by a name you choose; window: tokens seen, or a share of L"
    )


class Schedule(Scheme):
    options_class = ScheduleOptions
    two_sided = True  # if all of its schemes are
    options: ScheduleOptions

    def __init__(self, options: ScheduleOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        self.names = names_by_layer(options.layers, options.schemes, geometry.layers, "pos", "schemes")
        self.by_name: dict[str, Scheme] = {}
        for name in dict.fromkeys(self.names):
            section = dict(options.schemes[name])
            window = section.pop("window", geometry.window)
            if type(window) is float and 0 < window < 1:
                window = max(1, round(window * geometry.context_length))
            if window is not None and (type(window) is not int or window < 1):
                raise ConfigError(
                    f"pos.schemes.{name}.window={window} must be tokens, 1 or more, or a share of L below 1"
                )
            inner = replace(geometry, layers=self.names.count(name), window=window)
            scheme = build_scheme(section, inner, f"pos.schemes.{name}")
            if scheme.overrides("embed") or scheme.overrides("place"):
                raise ConfigError(
                    f"pos.schemes.{name}.scheme={scheme.name} acts on the input, which all layers share: "
                    "choose a scheme that acts inside a layer"
                )
            self.by_name[name] = scheme
        # In the order of their first layers, so that names do not affect initial weights.
        self.schemes = nn.ModuleList(self.by_name.values())

    def layer(self, index: int) -> Scheme:
        name = self.names[index]
        return self.by_name[name].layer(self.names[:index].count(name))

    @property
    def max_length(self) -> int | None:
        lengths = [scheme.max_length for scheme in self.by_name.values()]
        return min((length for length in lengths if length is not None), default=None)

    @property
    def shift_invariant(self) -> bool:
        return all(scheme.shift_invariant for scheme in self.by_name.values())

    @property
    def length_dependent(self) -> bool:
        return any(scheme.length_dependent for scheme in self.by_name.values())

    def section(self) -> dict[str, Any]:
        inner = {}
        for name, scheme in sorted(self.by_name.items()):
            window = scheme.geometry.window
            inner[name] = scheme.section() | ({} if window is None else {"window": window})
        return {**super().section(), "layers": self.names, "schemes": inner}

    def rescale(self, rescaling: Rescaling | None) -> bool:
        rescaled = [scheme.rescale(rescaling) for scheme in self.by_name.values()]
        return any(rescaled)
