"""Predict hidden tokens from both sides: masked language modelling (BERT; Devlin et al. 2019, section 3.1).

Most of the scored tokens are hidden by an extra token, some are replaced by a random token, and the rest are
left as they are. So the state of every token must represent what may be there. BERT scores 15 %;
Wettig et al. 2023 (arXiv 2202.08005) find that more is better.
"""

from typing import Self

import numpy as np
from jaxtyping import Int
from pydantic import Field, model_validator

from poslab.config.schema import Options
from poslab.objectives import UNSCORED, Examples, Objective

NUMBERS = 2.0**64  # the number of values of a raw random number


class MaskedOptions(Options):
    share: float = Field(gt=0, lt=1, description="share of the tokens that are scored")
    replaced: float = Field(ge=0, lt=1, description="share of these replaced by a uniformly random token")
    kept: float = Field(ge=0, lt=1, description="share of these left as they are; the rest are hidden")

    @model_validator(mode="after")
    def _some_are_hidden(self) -> Self:
        if self.replaced + self.kept >= 1:
            raise ValueError("replaced and kept leave no token hidden: choose a sum below 1")
        return self


class Masked(Objective):
    options_class = MaskedOptions
    options: MaskedOptions
    causal = False
    predicts = "hidden tokens, from those on both sides"
    extra_tokens = 1  # the token that hides others

    def examples(
        self, windows: Int[np.ndarray, "N T+1"], vocabulary: int, random: np.random.BitGenerator
    ) -> Examples:
        tokens = windows[:, :-1]
        chosen, how, raw = random.random_raw(3 * tokens.size).reshape(3, *tokens.shape)
        scored = chosen < self.options.share * NUMBERS
        scored[:, 0] |= ~scored.any(axis=1)  # at least one target in each window
        replaced = how < self.options.replaced * NUMBERS
        unchanged = ~replaced & (how < (self.options.replaced + self.options.kept) * NUMBERS)
        drawn = (raw % np.uint64(vocabulary)).astype(tokens.dtype)
        inputs = np.where(replaced, drawn, np.where(unchanged, tokens, vocabulary))
        return np.where(scored, inputs, tokens), np.where(scored, tokens, UNSCORED)
