"""Segments of the validation text for evaluation past the training length."""

import numpy as np
from numpy.typing import NDArray

from poslab.config.schema import ConfigError
from poslab.data.corpus import Corpus
from poslab.data.windows import windows_at


def extrapolation_segments(
    corpus: Corpus, count: int, longest: int, documents: str = "single"
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (n, 2 * longest + 1) validation tokens and each segment's document number; n <= count.

    Each segment lies within one document. Documents are the independent samples of a text, so every document
    with room gives one segment before any gives a second. If more have room than are needed, evenly spread
    ones are used. With `documents` "joined", a group of documents with enough room together counts as one.

    The last `longest` tokens of a segment are its targets. Each has at least `longest` tokens before it, so
    the same targets can be scored with any context up to `longest`. Contexts may overlap, targets do not.
    Raises ConfigError if no document has room for one segment.
    """
    size = 2 * longest + 1
    held_out = corpus.validation_documents
    begins, ends = (joined(held_out, size) if documents == "joined" else held_out).T
    room = np.maximum(ends - begins - longest - 1, 0)
    slots = room // longest
    taken = np.zeros_like(slots)
    while (left := count - taken.sum()) > 0 and len(open_documents := np.flatnonzero(taken < slots)):
        if len(open_documents) > left:
            open_documents = open_documents[(2 * np.arange(left) + 1) * len(open_documents) // (2 * left)]
        taken[open_documents] += 1
    document = np.arange(len(slots)).repeat(taken)
    if not len(document):
        needs = f"the {size:,} tokens that evaluation at length {longest:,} needs"
        remedy = "" if documents == "joined" else "; choose evaluate.documents=joined"
        raise ConfigError(f"no validation document of {corpus.name} has {needs}{remedy}")
    number = np.arange(len(document)) - (np.cumsum(taken) - taken)[document]
    slot = (2 * number + 1) * slots[document] // (2 * taken[document])
    # As in windows.py, leftover tokens are spread out too.
    slack = (room - slots * longest)[document] * (2 * slot + 1) // (2 * slots[document])
    starts = begins[document] + slot * longest + slack
    return windows_at(corpus.validation, starts, size), document


def joined(documents: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Join documents (n, 2) into groups (m, 2) of at least `size` tokens, including separators.

    Documents are in the order of the text, and a group ends with the first document that makes it long
    enough. If the last documents are too short together, they join the group before.
    """
    groups: list[tuple[int, int]] = []
    begin: int | None = None
    for first, end in documents.tolist():
        begin = first if begin is None else begin
        if end - begin >= size:
            groups.append((begin, end))
            begin = None
    if groups and begin is not None:
        groups[-1] = groups[-1][0], int(documents[-1, 1])
    return np.array(groups, dtype=np.int64).reshape(-1, 2)
