"""Training batches, drawn by the seed and the step, and prefetched for a GPU."""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from poslab.config.schema import RunConfig
from poslab.data.ahead import ahead
from poslab.data.corpus import Corpus
from poslab.data.questions import with_questions
from poslab.data.windows import Starts, training_batch
from poslab.objectives import UNSCORED, Examples, build_objective

AHEAD = 3  # batches prepared ahead for the GPU
Windows = NDArray[np.int64]


class Batch(NamedTuple):
    """One process's share of a microbatch: B windows, or the parts of their documents (`documents_apart`)."""

    tokens: Tensor  # (B, T)
    targets: Tensor  # (B, T), UNSCORED where a token has no target
    scored: int  # number of scored targets in this share
    scored_by_all: int  # the same for the shares of all processes together
    weight: float  # factor for the share's mean loss, so that a step's gradient is that of its targets' mean
    digest: bytes  # SHA-256 of the windows


class TrainingBatches:
    """Item i is this process's share of microbatch i % accumulate of step `first_step` + i // accumulate.

    The batch of a step depends only on the seed and the step. It is split into accumulate * world parts, and
    each of the `world` processes reads and takes every `world`th part. An iteration begins at the item
    `position`, which Lightning saves in checkpoints and restores.
    """

    def __init__(
        self,
        config: RunConfig,
        corpus: Corpus,
        first_step: int = 0,
        rank: int = 0,
        world: int = 1,
        prefetch: bool = False,
    ) -> None:
        """Begin at item 0. With `prefetch`, a thread draws items while earlier ones are trained on."""
        self.config = config
        self.corpus = corpus
        self.objective = build_objective(config.objective)
        self.windows = config.data.get("windows")
        self.starts = Starts(corpus, config.context_length, self.windows == "within")
        self.first_step = first_step
        self.rank = rank
        self.world = world
        # The windows that this process reads. It draws and counts the targets of all windows.
        parts = np.arange(config.trainer.batch_size).reshape(config.trainer.accumulate, world, -1)
        self.read = parts[:, rank].ravel()
        self.last: tuple[int, Windows, Windows, Windows] | None = None  # the last step and its batch
        self.prefetch = prefetch
        self.position = 0  # the next item

    def __len__(self) -> int:
        return self.config.trainer.max_steps * self.config.trainer.accumulate

    def __getitem__(self, index: int) -> Batch:
        step, part = divmod(index, self.config.trainer.accumulate)
        if self.last is None or self.last[0] != step:  # all parts of a step are cut from one batch
            self.last = step, *self._of_step(self.first_step + step)
        _, windows, tokens, targets = self.last
        parts = self.config.trainer.accumulate * self.world
        scored = [int(count) for count in (targets != UNSCORED).reshape(parts, -1).sum(axis=1)]
        place = part * self.world + self.rank
        size = len(windows) // parts
        share = slice(place * size, (place + 1) * size)
        rows, goals = tokens[share], targets[share]
        if self.windows == "packed":
            rows, goals = documents_apart(rows, goals, self.corpus.separator)
        return Batch(
            torch.from_numpy(rows),
            torch.from_numpy(goals),
            scored[place],
            sum(scored[part * self.world : (part + 1) * self.world]),
            scored[place] * parts / sum(scored),
            hashlib.sha256(windows[share].tobytes()).digest(),
        )

    def _of_step(self, number: int) -> tuple[Windows, Windows, Windows]:
        """Return the windows, tokens and targets of a step, for all processes."""
        seed, length = self.config.seed, self.config.context_length
        windows = training_batch(
            self.corpus, seed, number, self.config.trainer.batch_size, length, self.starts, self.read
        )
        probe = self.config.probe
        if probe.share is not None:
            windows = with_questions(windows, list(probe.tasks), probe.share, seed, number)
        return windows, *self.objective.of_step(windows, self.corpus.vocabulary, seed, number)

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]

    def __iter__(self) -> Iterator[Batch]:
        rest = range(self.position, len(self))
        for batch in ahead(self._pinned, rest, 1, AHEAD) if self.prefetch else map(self.__getitem__, rest):
            self.position += 1
            yield batch

    def _pinned(self, index: int) -> Batch:
        """Return an item in pinned memory, from which a GPU copies asynchronously."""
        batch = self[index]
        if not torch.cuda.is_available():
            return batch
        return batch._replace(tokens=batch.tokens.pin_memory(), targets=batch.targets.pin_memory())


def documents_apart(
    tokens: Int[np.ndarray, "N T"], targets: Int[np.ndarray, "N T"], separator: int
) -> Examples:
    """Return the part of each document in each window as a row of T tokens, so no document sees another.

    A part begins with the separator before its document. Padding after the end is not scored and, since
    tokens see only earlier ones, has no effect.
    """
    begins = tokens == separator
    begins[:, 0] = True
    firsts = np.flatnonzero(begins)
    row = begins.ravel().cumsum() - 1
    places = row, np.arange(tokens.size) - firsts[row]
    shape = len(firsts), tokens.shape[1]
    rows, scored = np.full(shape, separator), np.full(shape, UNSCORED)
    rows[places], scored[places] = tokens.ravel(), targets.ravel()
    return rows, scored
