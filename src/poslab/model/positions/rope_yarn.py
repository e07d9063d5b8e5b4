"""RoPE with YaRN (Peng et al. 2023, arXiv 2309.00071, sections 3.2 and 3.4): slow pairs are interpolated.

Pairs that turn once or less in the original length are interpolated by `factor`. Those that turn 32 times or
more are unchanged, with a ramp in between. Under softmax, queries and keys are each multiplied by
0.1 ln(factor) + 1.
"""

from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from poslab.model.positions.rope import RoPE, RoPEOptions
from poslab.model.rescaling import yarn, yarn_query_key_scale


class YaRNOptions(RoPEOptions):
    base: float = Field(gt=1, description="pair c of W/2 turns by base^(-2c/W) radians per token")
    factor: float = Field(gt=1, description="slow pairs are stretched to this many times the original length")
    original_length: int | None = Field(ge=1, description="tokens; null: the training length L")


class YaRN(RoPE):
    options_class = YaRNOptions
    options: YaRNOptions

    def scaled(self, theta: Float[Tensor, "W/2"], length: Int[Tensor, ""]) -> Float[Tensor, "W/2"]:
        original = self.options.original_length or self.geometry.context_length
        return yarn(theta, self.options.factor, original)

    def query_key_scale(self) -> float:
        return yarn_query_key_scale(self.options.factor)
