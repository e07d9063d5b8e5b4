"""Bilevel positions (BiPE; He et al. 2024, arXiv 2401.16421, section 3): in a segment, and between segments.

A segment ends with one of the tokens `ends`. The input of token number n of a segment, counted from 0, gains
a learned vector for n. A logit depends on the numbers s of its tokens' segments. BiPE-RoPE turns pair c of
queries and keys by s base^(-2c/K), and BiPE-ALiBi subtracts m_h f (s_i - s_j) from a logit, with ALiBi's m_h
and a factor f.
As in the authors' code, tokens of a segment from number L - 1 on share one vector.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad

from poslab.config.schema import ConfigError
from poslab.model.positions import Geometry, LearnedOptions, Scheme
from poslab.model.positions.alibi import slopes

BYTES = 256  # the entries of data.vocabulary=bytes
NEW_LINE, FULL_STOP = 10, 46  # in bytes


class BiPEOptions(LearnedOptions):
    ends: list[int] = Field(
        min_length=1,
        description="the tokens that end a segment; in bytes 10 is a new line and 46 a full stop",
    )
    between: Literal["rope", "alibi"] = Field(description="how the numbers of two segments enter a logit")
    constant: float = Field(gt=0, description="RoPE's base, or the factor on ALiBi's slopes")


class BiPE(Scheme):
    options_class = BiPEOptions
    shift_invariant = False  # tokens before the first end of a segment are counted from the window's first
    options: BiPEOptions
    slopes: Tensor

    def __init__(self, options: BiPEOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        if options.between == "rope":
            self.refuse_odd_heads()
        fixed = torch.tensor(slopes(geometry.heads), dtype=torch.float64)
        self.register_buffer("slopes", fixed, persistent=False)
        self.table = nn.Parameter(torch.empty(geometry.context_length, geometry.width))
        self._begins: Tensor | None = None  # (B T), whether a token is the first of its segment

    def overrides(self, hook: str) -> bool:
        without = "angles" if self.options.between == "alibi" else "log_gates"
        return hook != without and super().overrides(hook)

    def check_vocabulary(self, entries: int) -> None:
        ends = self.options.ends
        if not all(0 <= token < entries for token in ends):
            raise ConfigError(f"pos.ends={ends}: the tokens of the text are 0 to {entries - 1}")
        if entries != BYTES and {*ends} == {NEW_LINE, FULL_STOP}:
            raise ConfigError(
                f"pos.ends={ends} are a new line and a full stop in bytes, but other tokens in a vocabulary "
                f"of {entries}: choose data.vocabulary=bytes, or set pos.ends to tokens of that vocabulary"
            )

    def read_tokens(self, tokens: Int[Tensor, "B T"]) -> None:
        # Not torch.isin, for which the CPU would wait until `ends` is copied to a GPU.
        ends = torch.stack([tokens == token for token in self.options.ends]).any(dim=0)
        self._begins = pad(ends[:, :-1], (1, 0))

    def begins(self, length: int) -> Int[Tensor, "B T"]:
        """Return 1 for tokens that begin a segment, 0 for the others and for the window's first."""
        if self._begins is None:
            raise ValueError("pos.scheme=bipe needs the tokens to count segments: call its read_tokens first")
        return self._begins[:, :length].long()

    def embed(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        length = x.shape[1]
        places = torch.arange(length, device=x.device)
        first = (self.begins(length) * places).cummax(dim=1).values
        return x + self.table[(places - first).clamp(max=len(self.table) - 1)]

    def angles(
        self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B H T K/2"] | None:
        if self.options.between == "alibi":
            return None
        width = self.geometry.head_width
        pairs = torch.arange(0, width, 2, dtype=torch.float64, device=x.device)
        segments = self.begins(x.shape[1]).cumsum(dim=1)
        turned = segments[:, None, :, None] * self.options.constant ** (-pairs / width)
        return turned.expand(len(x), self.geometry.heads, -1, -1)

    def log_gates(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T"] | None:
        if self.options.between == "rope":
            return None
        lost = self.options.constant * self.slopes[:, None] * self.begins(x.shape[1])[:, None]
        return -lost.expand(len(x), -1, -1)
