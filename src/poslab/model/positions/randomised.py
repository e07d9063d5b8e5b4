"""Randomised positions (Ruoss et al. 2023, arXiv 2305.16843) for any other scheme.

The tokens of a window have sorted positions drawn without replacement from [0, stretch L). All windows of a
training step share one draw. Evaluation uses random positions, too, as in the paper: a fixed set per length.
"""

import hashlib
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from poslab.config.schema import ConfigError, Options
from poslab.model.around import Around
from poslab.model.positions import Geometry, Scheme, build_scheme


class RandomisedOptions(Options):
    stretch: int = Field(ge=2, description="positions are drawn below stretch times L")
    of: dict[str, Any] = Field(description="the section of the scheme that uses the random positions")


class Randomised(Around):
    options_class = RandomisedOptions
    two_sided = True  # if `of` is
    options: RandomisedOptions

    def __init__(self, options: RandomisedOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        self.reach = options.stretch * geometry.context_length
        self.of = build_scheme(
            options.of, replace(geometry, context_length=self.reach, consecutive=False), "pos.of"
        )
        layers = [self.of.layer(index) for index in range(geometry.layers)]
        if self.of.overrides("place") or not any(map(_uses_positions, [self.of, *layers])):
            raise ConfigError(
                f"pos.of.scheme={self.of.name} uses no positions, or draws its own: "
                "choose one that uses given positions, such as rope"
            )

    @property
    def max_length(self) -> int:
        return min(self.reach, self.of.max_length or self.reach)

    def place(self, length: int, stream: torch.Generator | None) -> Int[Tensor, "T"]:
        if stream is None:
            digest = hashlib.sha256(f"{self.reach}/{length}".encode()).digest()
            stream = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        return torch.randperm(self.reach, generator=stream)[:length].sort().values

    def layer(self, index: int) -> Scheme:
        return self.of.layer(index)


def _uses_positions(scheme: Scheme) -> bool:
    by_distance = ("bias", "pairwise_bias", "content_bias")
    hooks = ("embed", "rotate", "rotate_queries", "rotate_keys", *by_distance)
    return any(map(scheme.overrides, hooks)) and not scheme.overrides("read_tokens")  # BiPE counts its own
