"""Hidden tokens, from those on both sides: masked language modelling (BERT; Devlin et al. 2019, section 3.1).

Of the tokens that are scored, most are hidden by a token of their own, some are replaced by another one, and
the rest stay as they are, so that every token's state has to hold what may stand there. BERT scores 15 %;
Wettig et al. 2023 (arXiv 2202.08005) find more to be better.
"""

from typing import Self

import numpy as np
from jaxtyping import Int
from pydantic import Field, model_validator

from poslab.config.schema import Options
from poslab.objectives import UNSCORED, Examples, Objective

NUMBERS = 2.0**64  # as many values as a raw random number has


class MaskedOptions(Options):
    share: float = Field(gt=0, lt=1, description="of the tokens is scored")
    replaced: float = Field(ge=0, lt=1, description="of these are another token of the text, drawn evenly")
    kept: float = Field(ge=0, lt=1, description="of these are as they are; the rest are hidden")

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
    extra_tokens = 1  # the one that hides

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
        given = np.where(replaced, drawn, np.where(unchanged, tokens, vocabulary))
        return np.where(scored, given, tokens), np.where(scored, tokens, UNSCORED)
