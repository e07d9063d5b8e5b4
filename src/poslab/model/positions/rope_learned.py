"""RoPE and a learned vector for each of the L training positions: a scheme with two hooks."""

from jaxtyping import Float, Int
from torch import Tensor

from poslab.model.positions import LearnedOptions
from poslab.model.positions.learned import Learned
from poslab.model.positions.rope import RoPE, RoPEOptions


class RoPEWithLearnedOptions(RoPEOptions, LearnedOptions):
    pass


class RoPEWithLearned(RoPE, Learned):
    options_class = RoPEWithLearnedOptions
    options: RoPEWithLearnedOptions

    @property
    def max_length(self) -> int | None:
        return None if self.dropped else super().max_length

    def embed(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        if self.dropped:
            # With a gradient of 0, since training on several devices needs one for each parameter.
            return x + 0 * self.table[:1]
        return super().embed(x, positions)
