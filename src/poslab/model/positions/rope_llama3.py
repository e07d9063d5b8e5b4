"""RoPE with Llama 3.1's scaling (arXiv 2407.21783, and its published code): slow pairs turn more slowly.

Pairs that turn `low` times or less in the original length are slowed by `factor`, and those that turn `high`
times or more are unchanged. Between them, the two frequencies are mixed, with shares linear in the number of
turns. Llama 3.1 has factor 8, low 1, high 4 and original length 8192.
"""

from typing import Self

from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from poslab.model.positions.rope import RoPE, RoPEOptions
from poslab.model.rescaling import llama3


class Llama3Options(RoPEOptions):
    factor: float = Field(gt=1, description="slow pairs turn this many times slower")
    low: float = Field(
        gt=0, description="pairs with fewer turns over original_length are slowed by the whole factor"
    )
    high: float = Field(gt=0, description="pairs with more turns over original_length are unchanged")
    original_length: int | None = Field(ge=1, description="tokens; null: the training length L")

    @model_validator(mode="after")
    def _low_is_below_high(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low={self.low:g} must be below high={self.high:g}")
        return self


class Llama3RoPE(RoPE):
    options_class = Llama3Options
    options: Llama3Options

    def scaled(self, theta: Float[Tensor, "W/2"], length: Int[Tensor, ""]) -> Float[Tensor, "W/2"]:
        options = self.options
        original = options.original_length or self.geometry.context_length
        return llama3(theta, options.factor, options.low, options.high, original)
