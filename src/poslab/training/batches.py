"""The batches of a training, drawn by the seed and the step, and prefetched for a GPU."""

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
POLL_SECONDS = 0.1  # after which a waiting thread checks whether the training has ended

Batch = tuple[Tensor, bytes]  # windows (B, T+1), and their SHA-256


class TrainingBatches:
    """Item i is this process's share of microbatch i % accumulate of step `first_step` + i // accumulate.

    The batch of a step depends only on the seed and the step. It is split into accumulate * world parts, and
    every one of the `world` processes takes each `world`th part.
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
        parts = np.array_split(windows, options.accumulate * self.world)
        share = parts[part * self.world + self.rank]
        return torch.from_numpy(share), hashlib.sha256(share.tobytes()).digest()


class Loader:
    """The items of `batches` in order. Lightning saves its `position` in checkpoints, and restores it."""

    def __init__(self, batches: TrainingBatches) -> None:
        self.batches = batches
        self.position = 0  # of the next item

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
        """Yield the items, each drawn on request."""
        return (self.batches[index] for index in range(self.position, len(self)))


class Prefetcher(Loader):
    """A loader that draws items in a thread while earlier ones are trained on.

    With `pinned`, in memory that a GPU copies from by itself, so that training does not wait for the copy. An
    error in drawing a batch is raised where the batch is requested.
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
