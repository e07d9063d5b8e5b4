"""Predict the next token from those before it."""

import numpy as np
from jaxtyping import Int

from poslab.objectives import Examples, Objective


class Causal(Objective):
    predicts = "the next token, from those before it"

    def examples(
        self, windows: Int[np.ndarray, "N T+1"], vocabulary: int, random: np.random.BitGenerator
    ) -> Examples:
        return windows[:, :-1], windows[:, 1:]
