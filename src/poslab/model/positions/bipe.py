"""Bilevel positions (BiPE; He et al. 2024, arXiv 2401.16421, section 3): in a segment, and between segments.

A segment ends with one of the tokens `ends`. Token number n of its segment, from 0 on, has a learned vector
of n added to its input. Between tokens the numbers s of their segments count: under BiPE-RoPE pair c of
queries and keys turns by s base^(-2c/K), and under BiPE-ALiBi a logit loses m_h slope (s_i - s_j), with
ALiBi's m_h.
As in the authors' code, tokens of a segment from number L - 1 on share its vector.
"""

from typing import Self

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import pad

from poslab.model.positions import Geometry, LearnedOptions, Scheme
from poslab.model.positions.alibi import slopes


class BiPEOptions(LearnedOptions):
    ends: list[int] = Field(
        min_length=1,
        description="the tokens that end a segment; in bytes 10 is a new line and 46 a full stop",
    )
    base: float | None = Field(default=None, gt=0, description="RoPE's, by the number of the segment")
    slope: float | None = Field(
        default=None, gt=0, description="times ALiBi's slopes, by the number of the segment"
    )

    @model_validator(mode="after")
    def _one_between_segments(self) -> Self:
        if (self.base is None) == (self.slope is None):
            raise ValueError("between segments there is either RoPE, by base, or ALiBi, by slope: set one")
        return self


class BiPE(Scheme):
    options_class = BiPEOptions
    options: BiPEOptions
    slopes: Tensor

    def __init__(self, options: BiPEOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        if options.base is not None:
            self.refuse_odd_heads()
        fixed = torch.tensor(slopes(geometry.heads), dtype=torch.float64)
        self.register_buffer("slopes", fixed, persistent=False)
        self.table = nn.Parameter(torch.empty(geometry.context_length, geometry.width))
        self._begins: Tensor | None = None  # (B T), whether a token is the first of its segment

    @property
    def shift_invariant(self) -> bool:
        return False  # tokens before a segment's first end are counted from the window's first

    def overrides(self, hook: str) -> bool:
        without = "angles" if self.options.base is None else "log_gates"
        return hook != without and super().overrides(hook)

    def read_tokens(self, tokens: Int[Tensor, "B T"]) -> None:
        ends = torch.isin(tokens, torch.tensor(self.options.ends, device=tokens.device))
        self._begins = pad(ends[:, :-1], (1, 0))

    def begins(self, length: int) -> Int[Tensor, "B T"]:
        """Return 1 for tokens that begin a segment, 0 for the first of the window."""
        if self._begins is None:
            raise ValueError("pos.scheme=bipe counts segments of tokens: call its read_tokens first")
        return self._begins[:, :length].long()

    def embed(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        length = x.shape[1]
        places = torch.arange(length, device=x.device)
        first = (self.begins(length) * places).cummax(dim=1).values
        return x + self.table[(places - first).clamp(max=len(self.table) - 1)]

    def angles(
        self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T K/2"] | None:
        if self.options.base is None:
            return None
        width = self.geometry.head_width
        pairs = torch.arange(0, width, 2, dtype=torch.float64, device=x.device)
        segments = self.begins(x.shape[1]).cumsum(dim=1)
        turned = segments[:, None, :, None] * self.options.base ** (-pairs / width)
        return turned.expand(len(x), self.geometry.heads, -1, -1)

    def log_gates(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T"] | None:
        if self.options.slope is None:
            return None
        lost = self.options.slope * self.slopes[:, None] * self.begins(x.shape[1])[:, None]
        return -lost.expand(len(x), -1, -1)
