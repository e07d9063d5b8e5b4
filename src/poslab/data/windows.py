"""Windows of tokens: random ones for training, fixed ones for validation (extrapolation: segments.py).

A window of length T has T + 1 tokens: inputs are all but the last, targets all but the first. Fixed windows
share no targets.
"""

import numpy as np
from numpy.typing import NDArray

from poslab.config.schema import ConfigError
from poslab.data.corpus import Corpus


class Starts:
    """The possible starts of training windows of L + 1 tokens: anywhere in the text, or inside a document."""

    def __init__(self, corpus: Corpus, context_length: int, within: bool = False) -> None:
        """Raise ConfigError if no document is long enough for a window."""
        ends = np.array([len(corpus.train)])
        if within:
            ends = np.append(np.flatnonzero(corpus.train == corpus.separator), ends)
        begins = np.append(0, ends[:-1] + 1)
        room = np.maximum(ends - begins - context_length, 0)
        if not room.any():
            raise ConfigError(
                f"no training document of {corpus.name} has the {context_length + 1:,} tokens of a window: "
                "choose data.windows=joined or a smaller context_length"
            )
        self.count = int(room.sum())
        self.upto = np.cumsum(room)
        self.offset = begins - (self.upto - room)

    def __getitem__(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first token's position for the windows with these numbers, below `count`."""
        return numbers + self.offset[np.searchsorted(self.upto, numbers, side="right")]


def training_batch(
    corpus: Corpus,
    seed: int,
    step: int,
    batch_size: int,
    context_length: int,
    starts: Starts | None = None,
    read: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Return (batch_size, context_length + 1) tokens at random starts, decided by (seed, step).

    `starts` belong to this corpus and length; None: anywhere. 0 <= seed, step < 2^64. Only the windows with
    the numbers in `read` are read, the others are zeros; None: all are read.
    """
    starts = starts or Starts(corpus, context_length)
    # Raw numbers and a remainder are the same in every release of NumPy; Generator's methods need not be.
    random = np.random.Philox(key=np.array([seed, step], dtype=np.uint64))
    numbers = random.random_raw(batch_size) % np.uint64(starts.count)
    places = starts[numbers.astype(np.int64)]
    if read is None:
        return windows_at(corpus.train, places, context_length + 1)
    batch = np.zeros((batch_size, context_length + 1), dtype=np.int64)
    batch[read] = windows_at(corpus.train, places[read], context_length + 1)
    return batch


def validation_windows(corpus: Corpus, count: int, context_length: int) -> NDArray[np.int64]:
    """Return (n, context_length + 1) validation tokens, evenly spread; n <= count, less if the text is short.

    Windows lie within documents if these have room for `count` windows, otherwise across them.
    """
    starts = _spread(corpus.validation_documents, count, context_length)
    if len(starts) < count:
        starts = _spread(np.array([[0, len(corpus.validation)]]), count, context_length)
    return windows_at(corpus.validation, starts, context_length + 1)


def windows_at(tokens: NDArray[np.generic], starts: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return (n, size) tokens: `size` tokens from each start on."""
    return np.asarray(tokens[starts[:, None] + np.arange(size)]).astype(np.int64)


def _spread(documents: NDArray[np.int64], count: int, scored: int) -> NDArray[np.int64]:
    """Return the starts of at most `count` windows of 1 + `scored` tokens that share no targets.

    `documents` is (n, 2). Each document is cut into slots of `scored` targets after its first token, and
    evenly spaced slots are taken from all documents together.
    """
    begins, ends = documents.T
    room = np.maximum(ends - begins - 1, 0)
    slots = room // scored
    before = np.cumsum(slots) - slots
    total = int(slots.sum())
    taken = np.arange(total) if total <= count else (2 * np.arange(count) + 1) * total // (2 * count)
    document = np.searchsorted(before + slots, taken, side="right")
    slot = taken - before[document]
    # Leftover tokens are spread out too, so that windows do not gather at the beginnings of documents.
    slack = (room - slots * scored)[document] * (2 * slot + 1) // (2 * slots[document])
    return begins[document] + slot * scored + slack
