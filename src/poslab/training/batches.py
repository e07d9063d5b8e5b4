"""The batches of a training, each by the seed and the step alone, made ahead of a GPU that is at work."""

import hashlib
import queue
import threading
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from poslab.config.schema import RunConfig
from poslab.data.corpus import Corpus
from poslab.data.questions import with_questions
from poslab.data.windows import training_batch

AHEAD = 3  # batches that wait for the GPU
POLL_SECONDS = 0.1  # after which a thread that waits looks whether the training has ended

Batch = tuple[Tensor, bytes]  # windows (B, T+1), and their SHA-256


class TrainingBatches:
    """Item i is this process's share of microbatch i % accumulate of step `first_step` + i // accumulate.

    The batch of a step depends on the seed and the step alone. It is cut into accumulate * world parts, of
    which each of the `world` processes takes every `world`th one.
    """

    def __init__(
        self, config: RunConfig, corpus: Corpus, first_step: int = 0, rank: int = 0, world: int = 1
    ) -> None:
        self.config = config
        self.corpus = corpus
        self.first_step = first_step
        self.rank = rank
        self.world = world

    def __len__(self) -> int:
        return self.config.trainer.max_steps * self.config.trainer.accumulate

    def __getitem__(self, index: int) -> Batch:
        options = self.config.trainer
        step, part = divmod(index, options.accumulate)
        windows = training_batch(
            self.corpus,
            self.config.seed,
            self.first_step + step,
            options.batch_size,
            self.config.context_length,
        )
        probe = self.config.probe
        if probe.share is not None:
            windows = with_questions(
                windows, list(probe.tasks), probe.share, self.config.seed, self.first_step + step
            )
        own = np.array_split(windows, options.accumulate * self.world)[part * self.world + self.rank]
        return torch.from_numpy(own), hashlib.sha256(own.tobytes()).digest()


class Loader:
    """The items of `batches` in order. Lightning keeps its `position` in checkpoints, and restores it."""

    def __init__(self, batches: TrainingBatches) -> None:
        self.batches = batches
        self.position = 0  # of the item that comes next

    def __len__(self) -> int:
        return len(self.batches)

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._items():
            self.position += 1
            yield batch

    def _items(self) -> Iterator[Batch]:
        """Each made when it is asked for."""
        return (self.batches[index] for index in range(self.position, len(self)))


class MadeAhead(Loader):
    """A loader whose items are made by a thread while the ones before are trained on.

    With `pinned` in memory that a GPU copies from by itself, so that the copy is not waited for. A batch that
    cannot be made raises its error where it is asked for.
    """

    def __init__(self, batches: TrainingBatches, pinned: bool) -> None:
        super().__init__(batches)
        self.pinned = pinned

    def _items(self) -> Iterator[Batch]:
        ready: queue.Queue[Batch | BaseException] = queue.Queue(AHEAD)
        ended = threading.Event()
        rest = range(self.position, len(self))
        thread = threading.Thread(target=self._make, args=(rest, ready, ended), name="batches", daemon=True)
        thread.start()
        try:
            for _ in rest:
                item = ready.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:  # also where training stops before the last batch
            ended.set()
            thread.join()

    def _make(self, rest: range, ready: "queue.Queue[Batch | BaseException]", ended: threading.Event) -> None:
        try:
            for index in rest:
                windows, digest = self.batches[index]
                batch = (windows.pin_memory() if self.pinned else windows, digest)
                if not _put(ready, batch, ended):
                    return
        except BaseException as error:
            _put(ready, error, ended)


def _put(
    ready: "queue.Queue[Batch | BaseException]", item: Batch | BaseException, ended: threading.Event
) -> bool:
    """Whether the item went into the queue before the training ended."""
    while not ended.is_set():
        try:
            ready.put(item, timeout=POLL_SECONDS)
        except queue.Full:
            continue
        return True
    return False
