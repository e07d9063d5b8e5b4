"""Choose the part of a text that is held out for validation: `data.held_out` of it, by default a tenth.

With ten or more documents, whole documents are held out, in the order of the SHA-256 of their content, until
they make up the requested share of the bytes. So the choice depends only on the content. Documents longer
than a tenth of the held-out part are skipped if enough others remain: one of them would decide every loss.
With fewer than ten, the end of each is held out. Exact duplicates are dropped, so nothing is in both parts.
"""

import math
import re
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from poslab.config.schema import ConfigError

WHOLE_DOCUMENTS_FROM = 10
MOST = Fraction(1, 2)  # the largest share of a text that can be held out
UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
BYTES = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([kmg]?b)", re.IGNORECASE)


def held_out_bytes(held_out: str) -> Fraction | None:
    """Return the bytes of a size such as 64MB; None if it is not a size above 0."""
    size = BYTES.fullmatch(held_out)
    return (Fraction(size[1]) * UNITS[size[2].lower()] or None) if size else None


def held_out_share(held_out: float | str, total: int) -> Fraction:
    """Return the share of a text of `total` bytes that is held out. Raises ConfigError."""
    if not isinstance(held_out, str):
        return Fraction(str(held_out))
    share = (held_out_bytes(held_out) or Fraction(0)) / total
    if share > MOST:
        raise ConfigError(
            f"data.held_out={held_out} is over half of the text ({total:,} bytes): choose less, or a share"
        )
    return share


def first_of_each(hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return (n,) whether each document is the first with its 64-bit hash; the others are duplicates."""
    first = np.zeros(len(hashes), dtype=np.bool_)
    first[np.unique(hashes, return_index=True)[1]] = True
    return first


def hold_out(sizes: NDArray[np.int64], hashes: NDArray[np.uint64], share: Fraction) -> NDArray[np.int64]:
    """Return (n,) the end of each document's training part in bytes: its size, 0, or a value between.

    `sizes` are the documents' bytes, `hashes` the first 64 bits of their SHA-256. An end within a document
    can split a character.
    """
    if len(sizes) >= WHOLE_DOCUMENTS_FROM:
        total = int(sizes.sum())
        for longest in (share * total / 10, Fraction(total)):
            held_out = _held_out_documents(sizes, hashes, share, int(longest))
            if held_out.any():
                return np.where(held_out, 0, sizes)
    ends = [size - size * share.numerator // share.denominator for size in sizes.tolist()]
    return np.array(ends, dtype=np.int64)


def _held_out_documents(
    sizes: NDArray[np.int64], hashes: NDArray[np.uint64], share: Fraction, longest: int
) -> NDArray[np.bool_]:
    """Return (n,) which documents of at most `longest` bytes are held out; none if they do not suffice."""
    total = int(sizes.sum())
    enough = math.ceil(share * total)
    # A document that is most of the text stays in the training part.
    room = int(min(2 * share, (1 + share) / 2) * total)
    held_out = np.zeros(len(sizes), dtype=np.bool_)
    taken = 0
    for index in np.argsort(hashes, kind="stable").tolist():
        if taken >= enough:
            return held_out
        size = int(sizes[index])
        if size <= longest and taken + size <= room:
            held_out[index] = True
            taken += size
    return np.zeros_like(held_out)
