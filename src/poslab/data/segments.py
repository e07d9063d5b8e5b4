"""Segments of the validation text, which trained models are extrapolated on."""

import numpy as np
from numpy.typing import NDArray

from poslab.config.schema import ConfigError
from poslab.data.corpus import Corpus
from poslab.data.windows import windows_at


def extrapolation_segments(
    corpus: Corpus, count: int, longest: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(n, 2 * longest + 1) validation tokens, and the number of the document of each; n <= count.

    Each segment lies within one document. Documents are the independent draws of a text, so each that has
    room gives one segment before any gives a second; of more documents than segments, evenly spread ones.

    The last `longest` tokens of a segment are its targets. Each has at least `longest` tokens before it, so
    the same targets can be scored with any context up to `longest`. Contexts may overlap, targets do not.
    Raises ConfigError where no document has room for one segment.
    """
    begins, ends = corpus.validation_documents.T
    room = np.maximum(ends - begins - longest - 1, 0)
    slots = room // longest
    taken = np.zeros_like(slots)
    while (left := count - taken.sum()) > 0 and len(having := np.flatnonzero(taken < slots)):
        if len(having) > left:
            having = having[(2 * np.arange(left) + 1) * len(having) // (2 * left)]
        taken[having] += 1
    document = np.arange(len(slots)).repeat(taken)
    if not len(document):
        needs = f"the {2 * longest + 1:,} tokens that evaluation at length {longest:,} needs"
        raise ConfigError(f"no validation document of {corpus.name} has {needs}")
    number = np.arange(len(document)) - (np.cumsum(taken) - taken)[document]
    slot = (2 * number + 1) * slots[document] // (2 * taken[document])
    # As in windows.py, tokens left over are spread too.
    slack = (room - slots * longest)[document] * (2 * slot + 1) // (2 * slots[document])
    starts = begins[document] + slot * longest + slack
    return windows_at(corpus.validation, starts, 2 * longest + 1), document
