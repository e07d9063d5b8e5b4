"""A factor on queries that grows with their position by a fixed rule, around any other scheme.

    llama4    1 + strength log(1 + floor((i + 1) / start))     Llama 4 (Ministral 3: floor(i / start))
    inkling   1 + strength log(max((i + 1) / start, 1))        Inkling
    beam      (1 + (i + 1) / start)^strength                   Beam
    yarn      (1 + strength log(max((i + 1) / start, 1)))^2    YaRN's temperature (Peng et al. 2023), RoPE-ID

multiplies the queries at position i, in layers without a rotation (Llama 4, Beam) or in those that see the
whole text (Inkling), as an entry of a schedule. The rules are those of the models' code in transformers, with
a start of 8,192 tokens (Llama 4) or 2,048 (Beam). YaRN's start is the training length, in every layer, and
the last token's factor applies to all queries; here each has its own, which no later token changes.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from poslab.model.around import AroundOptions, Scaled, ScaledLayer
from poslab.model.positions import Geometry


class LogScaledOptions(AroundOptions):
    rule: Literal["llama4", "inkling", "beam", "yarn"] = Field(
        description="the formula of the factor (docs/schemes/log_scaled.md)"
    )
    strength: float = Field(gt=0, description="strength of the growth; 0.1 in the models of all four rules")
    start: int | None = Field(
        ge=1, description="tokens at which the growth begins; for beam, the unit of i + 1; null: L"
    )


class _LogScaledLayer(ScaledLayer):
    options: LogScaledOptions

    def factor(self, positions: Int[Tensor, "T"]) -> Float[Tensor, "1 T"]:
        assert self.options.start is not None
        tokens = (positions.double() + 1) / self.options.start
        strength = self.options.strength
        if self.options.rule == "llama4":
            return (1 + strength * torch.log1p(tokens.floor()))[None]
        if self.options.rule == "inkling":
            return (1 + strength * tokens.clamp(min=1).log())[None]
        if self.options.rule == "yarn":
            return (1 + strength * tokens.clamp(min=1).log()).square()[None]
        return ((1 + tokens) ** strength)[None]


class LogScaled(Scaled):
    options_class = LogScaledOptions
    layer_class = _LogScaledLayer
    options: LogScaledOptions

    def __init__(self, options: LogScaledOptions, geometry: Geometry) -> None:
        # Records have the number, so that null and L are one setting.
        start = options.start or geometry.context_length
        super().__init__(options.model_copy(update={"start": start}), geometry)
