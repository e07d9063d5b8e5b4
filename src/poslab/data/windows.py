"""Windows of tokens: random ones to train on, fixed ones to validate and to extrapolate on.

A window of length T is T + 1 tokens: inputs are all but the last, targets all but the first. No target of a
fixed window is scored twice.
"""

import numpy as np
from numpy.typing import NDArray

from poslab.config.schema import ConfigError
from poslab.data.corpus import Corpus


def training_batch(
    corpus: Corpus, seed: int, step: int, batch_size: int, context_length: int
) -> NDArray[np.int64]:
    """(batch_size, context_length + 1) tokens at random starts, which (seed, step) alone decide.

    Windows may cross documents. 0 <= seed, step < 2^64.
    """
    # Raw numbers and a remainder are the same in every release of NumPy; Generator's methods need not be.
    random = np.random.Philox(key=np.array([seed, step], dtype=np.uint64))
    starts = random.random_raw(batch_size) % np.uint64(len(corpus.train) - context_length)
    return _windows(corpus.train, starts.astype(np.int64), context_length + 1)


def validation_windows(corpus: Corpus, count: int, context_length: int) -> NDArray[np.int64]:
    """(n, context_length + 1) validation tokens, evenly spread; n <= count, fewer where the text ends before.

    Within documents where these have room for `count` windows, else across them.
    """
    starts = _spread(corpus.validation_documents, count, lead=0, scored=context_length)
    if len(starts) < count:
        everything = np.array([[0, len(corpus.validation)]])
        starts = _spread(everything, count, lead=0, scored=context_length)
    return _windows(corpus.validation, starts, context_length + 1)


def extrapolation_segments(corpus: Corpus, count: int, longest: int) -> NDArray[np.int64]:
    """(n, 2 * longest + 1) validation tokens, evenly spread, each within one document; n <= count.

    The last `longest` tokens of a segment are its targets. Each has at least `longest` tokens before it, so
    the same targets can be scored with any context up to `longest`. Contexts may overlap, targets do not.
    Raises ConfigError where no document has room for one segment.
    """
    starts = _spread(corpus.validation_documents, count, lead=longest, scored=longest)
    if not len(starts):
        needs = f"the {2 * longest + 1:,} tokens that evaluation at length {longest:,} needs"
        raise ConfigError(f"no validation document of {corpus.name} has {needs}")
    return _windows(corpus.validation, starts, 2 * longest + 1)


def _windows(tokens: NDArray[np.generic], starts: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    return np.asarray(tokens[starts[:, None] + np.arange(size)]).astype(np.int64)


def _spread(documents: NDArray[np.int64], count: int, lead: int, scored: int) -> NDArray[np.int64]:
    """The starts of at most `count` windows of `lead` + 1 + `scored` tokens, each with targets of its own.

    `documents` is (n, 2). Each document is cut into slots of `scored` targets after its first `lead` + 1
    tokens; evenly spaced slots of all of them are taken.
    """
    begins, ends = documents.T
    room = np.maximum(ends - begins - lead - 1, 0)
    slots = room // scored
    before = np.cumsum(slots) - slots
    total = int(slots.sum())
    taken = np.arange(total) if total <= count else (2 * np.arange(count) + 1) * total // (2 * count)
    document = np.searchsorted(before + slots, taken, side="right")
    slot = taken - before[document]
    # Tokens left over are spread too, so that windows do not gather at the beginnings of documents.
    slack = (room - slots * scored)[document] * (2 * slot + 1) // (2 * slots[document])
    return begins[document] + slot * scored + slack
