"""Windows of tokens: random ones to train on, fixed ones to validate and to extrapolate on.

A window of length T is T + 1 tokens: inputs are all but the last, targets all but the first. No target of a
fixed window is scored twice.
"""

import numpy as np
from numpy.typing import NDArray

from poslab.config.schema import ConfigError
from poslab.data.corpus import Corpus

Integers = NDArray[np.int64]


def training_batch(corpus: Corpus, seed: int, step: int, batch_size: int, context_length: int) -> Integers:
    """Return (batch_size, context_length + 1) tokens at random starts, decided by (seed, step).

    Windows may cross documents. 0 <= seed, step < 2^64.
    """
    # Raw numbers and a remainder are the same in every release of NumPy; Generator's methods need not be.
    random = np.random.Philox(key=np.array([seed, step], dtype=np.uint64))
    starts = random.random_raw(batch_size) % np.uint64(len(corpus.train) - context_length)
    return _windows(corpus.train, starts.astype(np.int64), context_length + 1)


def validation_windows(corpus: Corpus, count: int, context_length: int) -> Integers:
    """(n, context_length + 1) validation tokens, evenly spread; n <= count, fewer where the text ends before.

    Within documents where these have room for `count` windows, else across them.
    """
    starts = _spread(corpus.validation_documents, count, context_length)
    if len(starts) < count:
        starts = _spread(np.array([[0, len(corpus.validation)]]), count, context_length)
    return _windows(corpus.validation, starts, context_length + 1)


def extrapolation_segments(corpus: Corpus, count: int, longest: int) -> tuple[Integers, Integers]:
    """(n, 2 * longest + 1) validation tokens, and the number of the document of each; n <= count.

    Each segment lies within one document. Documents are the independent draws of a text, so each that has
    room gives one segment before any gives a second; of more documents than segments, evenly spread ones.

    The last `longest` tokens of a segment are its targets. Each has at least `longest` tokens before it, so
    the same targets can be scored with any context up to `longest`. Contexts may overlap, targets do not.
    Raises ConfigError where no document has room for one segment.
    """
    documents = corpus.validation_documents
    slots = _room(documents, longest) // longest
    taken = np.zeros_like(slots)
    while (left := count - taken.sum()) > 0 and len(having := np.flatnonzero(taken < slots)):
        taken[having if len(having) <= left else having[_evenly(len(having), left)]] += 1
    document = np.arange(len(slots)).repeat(taken)
    if not len(document):
        needs = f"the {2 * longest + 1:,} tokens that evaluation at length {longest:,} needs"
        raise ConfigError(f"no validation document of {corpus.name} has {needs}")
    number = np.arange(len(document)) - (np.cumsum(taken) - taken)[document]
    slot = (2 * number + 1) * slots[document] // (2 * taken[document])
    starts = _starts(documents, document, slot, lead=longest, scored=longest)
    return _windows(corpus.validation, starts, 2 * longest + 1), document


def _windows(tokens: NDArray[np.generic], starts: Integers, size: int) -> Integers:
    return np.asarray(tokens[starts[:, None] + np.arange(size)]).astype(np.int64)


def _spread(documents: Integers, count: int, scored: int) -> Integers:
    """The starts of at most `count` windows of 1 + `scored` tokens, evenly over all documents."""
    slots = _room(documents, lead=0) // scored
    before = np.cumsum(slots) - slots
    total = int(slots.sum())
    taken = np.arange(total) if total <= count else _evenly(total, count)
    document = np.searchsorted(before + slots, taken, side="right")
    return _starts(documents, document, taken - before[document], lead=0, scored=scored)


def _room(documents: Integers, lead: int) -> Integers:
    """The targets that each document has, (begin, end) a row, after its first `lead` + 1 tokens."""
    begins, ends = documents.T
    return np.maximum(ends - begins - lead - 1, 0)


def _evenly(total: int, count: int) -> Integers:
    """`count` of the numbers below `total`, evenly spread."""
    return (2 * np.arange(count) + 1) * total // (2 * count)


def _starts(documents: Integers, document: Integers, slot: Integers, lead: int, scored: int) -> Integers:
    """The starts of windows of `lead` + 1 + `scored` tokens, each for one slot of `scored` targets.

    Tokens left over are spread too, so that windows do not gather at the beginnings of documents.
    """
    room = _room(documents, lead)[document]
    slack = room % scored * (2 * slot + 1) // (2 * (room // scored))
    return documents[document, 0] + slot * scored + slack
