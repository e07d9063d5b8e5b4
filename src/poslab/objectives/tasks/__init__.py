"""Tasks: generated sequences in which a model has to complete an answer, by the size of the sample.

A task is an objective: a module of poslab.objectives with one subclass of Task, which generates samples. It
uses no text. Every training batch is new, drawn from the seed and the step. The test samples are the same in
every run and in no training batch: by a hash of the question, a quarter of all samples are for tests and the
others for training. Sizes above the longest of training show how far a model generalises (Kazemnejad et al.
2023, arXiv 2305.19466; Zhou et al. 2024, arXiv 2402.09371).

Shapes: N samples, T tokens.
"""

import string
import zlib
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from jaxtyping import Int
from pydantic import Field, model_validator

from poslab.config.schema import ConfigError, Options
from poslab.objectives import UNSCORED, Examples, Objective

LETTERS = string.ascii_lowercase.encode()
FILL = ord(" ")  # fills the window around a sample, never scored
OF_TESTS = 4  # one in so many samples, by the hash of the question, is for tests
TRIES = 1000


class Draw:
    """Random integers from a bit generator, the same in every release of NumPy."""

    def __init__(self, random: np.random.BitGenerator) -> None:
        self.random = random

    def below(self, count: int) -> int:
        return int(self.random.random_raw()) % count

    def choices(self, symbols: bytes, count: int) -> bytes:
        """Return `count` symbols drawn with replacement, like `random.choices`."""
        raw: Any = self.random.random_raw(count)
        return bytes(symbols[number % len(symbols)] for number in raw.tolist())

    def order(self, items: bytes) -> bytes:
        """Return the items in random order."""
        raw: Any = self.random.random_raw(len(items))
        return bytes(items[place] for place in np.argsort(raw, kind="stable"))


class Sample(NamedTuple):
    """The bytes of one sample, each a token, and the places of those that the model has to predict."""

    text: bytes
    answer: Sequence[int]


def asked(prompt: bytes, answer: bytes) -> Sample:
    """Return a sample with a prompt and then its answer, which ends with a line feed."""
    text = prompt + answer + b"\n"
    return Sample(text, range(len(prompt), len(text)))


class TaskOptions(Options):
    shortest: int = Field(ge=1, description="smallest size of a sample, in training and in tests")
    longest: int = Field(ge=1, description="largest size of a training sample; sizes are drawn uniformly")
    tested: int = Field(ge=1, description="the largest tested size")
    samples: int = Field(ge=1, description="number of test samples at each size")
    offset: bool = Field(
        description="whether training samples start anywhere in the window instead of at its start"
    )

    @model_validator(mode="after")
    def _sizes_ascend(self) -> Self:
        if not self.shortest <= self.longest <= self.tested:
            raise ValueError("choose sizes with shortest <= longest <= tested")
        return self


class Task(Objective):
    """The contract of a task: `sample`. All samples of a size have the same number of tokens."""

    options_class: ClassVar[type[TaskOptions]] = TaskOptions
    options: TaskOptions
    reads_text = False
    predicts = "the answers of a task"

    def sample(self, size: int, draw: Draw) -> Sample:
        """Return a random sample of this size."""
        raise NotImplementedError

    def examples(
        self, windows: Int[np.ndarray, "N T+1"], vocabulary: int, random: np.random.BitGenerator
    ) -> Examples:
        return self._windows(windows, Draw(random), for_tests=False)

    def of_evaluation(self, windows: Int[np.ndarray, "N T+1"], vocabulary: int) -> Examples:
        """Return samples of the training sizes that are in no training batch."""
        random = np.random.Philox(key=np.zeros(2, dtype=np.uint64), counter=[0, 0, 0, 4])
        return self._windows(windows, Draw(random), for_tests=True)

    def tests(self, size: int) -> Examples:
        """Return the test samples of a size, the same for every run, from their first to their last token."""
        random = np.random.Philox(key=np.array([size, 0], dtype=np.uint64), counter=[0, 0, 0, 6])
        draw = Draw(random)
        samples = [self.drawn(size, draw, for_tests=True) for _ in range(self.options.samples)]
        return _laid_out(samples, [0] * len(samples), len(samples[0].text))

    def needs(self) -> int:
        """Return the number of tokens of the longest training sample, which must fit into a window."""
        random = np.random.Philox(key=np.zeros(2, dtype=np.uint64))
        return len(self.sample(self.options.longest, Draw(random)).text) - 1

    def drawn(self, size: int, draw: Draw, for_tests: bool) -> Sample:
        """Return a sample for tests or one for training. Raise ConfigError if none is found."""
        for _ in range(TRIES):
            sample = self.sample(size, draw)
            question = bytes(byte for place, byte in enumerate(sample.text) if place not in sample.answer)
            if (zlib.crc32(question) % OF_TESTS == 0) is for_tests:
                return sample
        raise ConfigError(
            f"objective.shortest={size} has too few different samples to reserve some for tests: increase it"
        )

    def _windows(self, windows: Int[np.ndarray, "N T+1"], draw: Draw, for_tests: bool) -> Examples:
        """Return windows with a sample each, in place of their text."""
        count, width = windows.shape
        sizes = self.options.longest - self.options.shortest + 1
        samples, starts = [], []
        for _ in range(count):
            samples.append(self.drawn(self.options.shortest + draw.below(sizes), draw, for_tests))
            room = width - len(samples[-1].text) + 1
            starts.append(draw.below(room) if self.options.offset else 0)
        return _laid_out(samples, starts, width)


def _laid_out(samples: Sequence[Sample], starts: Sequence[int], width: int) -> Examples:
    """Return each sample in a window of `width` tokens: all tokens except the last, and the targets."""
    rows = np.full((len(samples), width), FILL, dtype=np.int64)
    targets = np.full((len(samples), width), UNSCORED, dtype=np.int64)
    for row, target, sample, start in zip(rows, targets, samples, starts, strict=True):
        text = np.frombuffer(sample.text, dtype=np.uint8)
        row[start : start + len(text)] = text
        places = start + np.array(sample.answer)
        target[places] = row[places]
    return rows[:, :-1], targets[:, 1:]
