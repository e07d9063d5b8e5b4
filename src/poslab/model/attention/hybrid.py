"""A mixer for each layer, such as attention in every fourth and a recurrence in the others.

`layers` names an entry of `mixers` for each layer, and is repeated until all layers have one. An entry is the
section of a mixer. The scheme acts only in the layers with attention, since the others encode order by
themselves (as in Qwen3-Next; with pos=none no layer has positions, as in Kimi Linear). All layers see what a
scheme adds to the input.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator

from poslab.config.schema import Options, PairError
from poslab.model.attention import Attention, Mixer, attention_section, build_attention, mixer_class
from poslab.model.layered import names_by_layer
from poslab.model.positions import Geometry, Scheme
from poslab.model.recurrence import ADDED_TO_LOGITS, ROTATIONS

# Hooks by which a scheme acts inside a layer.
INSIDE = *ADDED_TO_LOGITS, *ROTATIONS, "angles", "score_bias", "transitions", "products"


class HybridOptions(Options):
    layers: list[str] = Field(
        min_length=1, description="for each layer, the name of its mixer in mixers; repeated over the layers"
    )
    mixers: dict[str, dict[str, Any]] = Field(
        description="the section of each mixer, under a name of your choice"
    )

    @field_validator("mixers")
    @classmethod
    def _in_one_form(cls, mixers: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return {name: attention_section(mixers[name], f"attention.mixers.{name}") for name in sorted(mixers)}


class Hybrid(Mixer):
    options_class = HybridOptions

    @classmethod
    def of_layers(cls, options: Options, geometry: Geometry, schemes: Sequence[Scheme]) -> list[Mixer]:
        assert isinstance(options, HybridOptions)
        names = names_by_layer(options.layers, options.mixers, geometry.layers, "attention", "mixers")
        mixers = [
            _mixer(options.mixers[name], geometry, scheme)
            for name, scheme in zip(names, schemes, strict=False)  # one scheme builds only the first layer
        ]
        pairs = list(zip(mixers, schemes, strict=True))
        attended = [scheme for mixer, scheme in pairs if isinstance(mixer, Attention)]
        seen = {id(parameter) for scheme in attended for parameter in scheme.learned()}
        whole = len(pairs) == geometry.layers  # False if one layer is built by itself
        for mixer, scheme in pairs:
            if not all(id(parameter) in seen for parameter in scheme.learned()):
                raise PairError(
                    f"pos.scheme={scheme.name} has parameters for each layer, but layers with "
                    f"attention.kind={mixer.name} use none of them: give it only to the layers "
                    "with attention, by a schedule with scheme none in the others, or choose pos=rope"
                )
            if whole and _acts(scheme) and _kind(scheme) not in map(_kind, attended):
                raise PairError(
                    f"pos.scheme={scheme.name} is only in layers with attention.kind={mixer.name}, which "
                    "use no scheme: give it to layers with attention by a schedule, or choose pos=none"
                )
        return mixers


def _acts(scheme: Scheme) -> bool:
    """Return whether a scheme has an effect inside a layer."""
    return scheme.geometry.window is not None or any(map(scheme.overrides, INSIDE))


def _kind(scheme: Scheme) -> tuple[Any, ...]:
    """Return a key that is equal for layers with the same scheme."""
    inside = getattr(scheme, "inside", None)
    return type(scheme), scheme.options, scheme.geometry.window, inside and _kind(inside)


def _mixer(section: Mapping[str, Any], geometry: Geometry, scheme: Scheme) -> Mixer:
    without_attention = not issubclass(mixer_class(section), Attention)
    return build_attention(section, geometry, Scheme(Options(), geometry) if without_attention else scheme)
