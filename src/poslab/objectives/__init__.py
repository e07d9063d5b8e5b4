"""Training objectives: an objective turns windows of text into tokens and targets.

Each file here is an objective. Its loss is the cross entropy of the targets, in nats per scored target, in
training and in every evaluation. `causal` determines for every scheme and attention whether a token sees only
earlier tokens; a part without a form for both sides raises an error.

Shapes: N windows, T tokens.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from poslab.config.registry import find, options_of, part_name
from poslab.config.schema import CAUSAL, ConfigError, Options

UNSCORED = -100  # the target of a token that is not scored; PyTorch's cross entropy ignores it

Examples = tuple[Int[np.ndarray, "N T"], Int[np.ndarray, "N T"]]


class Objective:
    """The contract of an objective."""

    options_class: ClassVar[type[Options]] = Options
    causal: ClassVar[bool] = True
    predicts: ClassVar[str] = "targets of its own"  # what it predicts, in words, for reports
    reads_text: ClassVar[bool] = True  # False if its examples come only from random numbers
    extra_tokens: ClassVar[int] = 0  # added to the model's vocabulary, after the tokens of the text

    def __init__(self, options: Options) -> None:
        self.options = options

    def needs(self) -> int:
        """Return the smallest number of tokens that a window must have."""
        return 1

    def section(self) -> dict[str, Any]:
        """Return the `objective` section of a configuration for this objective."""
        return {"kind": part_name(type(self), __name__), **self.options.model_dump()}

    def examples(
        self, windows: Int[np.ndarray, "N T+1"], vocabulary: int, random: np.random.BitGenerator
    ) -> Examples:
        """Return the model's input tokens and, at each of them, its target or UNSCORED.

        The text has tokens from 0 to `vocabulary` - 1. Score at least one target of each window. Which ones
        are scored may depend only on `random`: if several processes share a batch, each has only the tokens
        of its own windows, and zeros for the others. Draw from `random.random_raw`: its numbers are the same
        in every release of NumPy.
        """
        raise NotImplementedError

    def of_step(self, windows: Int[np.ndarray, "N T+1"], vocabulary: int, seed: int, step: int) -> Examples:
        """Return the examples of a training batch: random draws depend only on the seed and the step."""
        # The random stream of `training_batch`, at another counter.
        key = np.array([seed, step], dtype=np.uint64)
        return self.examples(windows, vocabulary, np.random.Philox(key=key, counter=[0, 0, 0, 3]))

    def of_evaluation(self, windows: Int[np.ndarray, "N T+1"], vocabulary: int) -> Examples:
        """Return the examples of an evaluation; the random draws are the same in every run."""
        key = np.zeros(2, dtype=np.uint64)
        return self.examples(windows, vocabulary, np.random.Philox(key=key, counter=[0, 0, 0, 4]))


def build_objective(section: Mapping[str, Any]) -> Objective:
    """Build the objective that the `objective` section of a configuration describes. Raise ConfigError."""
    kind = find(section.get("kind"), Objective, __name__, "objective.kind")
    return kind(options_of(section, kind, "kind", "objective"))


def recorded_objective(settings: Mapping[str, Any]) -> Objective | None:
    """Return the objective of a record's settings, or None if it can no longer be built."""
    try:
        return build_objective(settings.get("objective", CAUSAL))
    except ConfigError:
        return None
