"""What a model is trained to do: an objective turns windows of text into tokens and targets.

A file here is an objective. Its loss is the cross entropy of the targets, in nats per scored target, in
training and in every evaluation. `causal` decides for every scheme and attention whether a token has only
those before it; a part that has no form for both sides refuses.

Shapes: N windows, T tokens.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from poslab.config.registry import find, options_of, part_name
from poslab.config.schema import CAUSAL, ConfigError, Options

UNSCORED = -100  # the target of a token that is not scored, which PyTorch's cross entropy leaves out

Examples = tuple[Int[np.ndarray, "N T"], Int[np.ndarray, "N T"]]


class Objective:
    """The contract of an objective."""

    options_class: ClassVar[type[Options]] = Options
    causal: ClassVar[bool] = True
    predicts: ClassVar[str] = "targets of its own"  # in words, for reports
    reads_text: ClassVar[bool] = True  # False: it makes its examples only from random numbers
    extra_tokens: ClassVar[int] = 0  # of the model's vocabulary, after those of the text

    def __init__(self, options: Options) -> None:
        self.options = options

    def needs(self) -> int:
        """Return the fewest tokens that a window must have."""
        return 1

    def section(self) -> dict[str, Any]:
        """Return the section of a configuration that describes this objective."""
        return {"kind": part_name(type(self), __name__), **self.options.model_dump()}

    def examples(
        self, windows: Int[np.ndarray, "N T+1"], vocabulary: int, random: np.random.BitGenerator
    ) -> Examples:
        """Return the tokens that the model is given and, at each of them, its target or UNSCORED.

        The text has tokens from 0 to `vocabulary` - 1. At least one target of each window is scored, and
        which ones may depend only on `random`: of a batch that several processes share, each knows only the
        tokens of its own windows, and zeros. Draw from `random.random_raw`: its numbers are the same in
        every release of NumPy.
        """
        raise NotImplementedError

    def of_step(self, windows: Int[np.ndarray, "N T+1"], vocabulary: int, seed: int, step: int) -> Examples:
        """Return the examples of a training batch: what is drawn depends only on the seed and the step."""
        # The random stream of `training_batch`, from another place on.
        key = np.array([seed, step], dtype=np.uint64)
        return self.examples(windows, vocabulary, np.random.Philox(key=key, counter=[0, 0, 0, 3]))

    def of_evaluation(self, windows: Int[np.ndarray, "N T+1"], vocabulary: int) -> Examples:
        """Return the examples of an evaluation: the same in every run."""
        key = np.zeros(2, dtype=np.uint64)
        return self.examples(windows, vocabulary, np.random.Philox(key=key, counter=[0, 0, 0, 4]))


def build_objective(section: Mapping[str, Any]) -> Objective:
    """Build the objective that the `objective` section of a configuration describes. Raise ConfigError."""
    kind = find(section.get("kind"), Objective, __name__, "objective.kind")
    return kind(options_of(section, kind, "kind", "objective"))


def recorded_objective(settings: Mapping[str, Any]) -> Objective | None:
    """Return the objective of a record's settings; None where its module is no longer there."""
    try:
        return build_objective(settings.get("objective", CAUSAL))
    except ConfigError:
        return None
