"""Which part of a text is held out for validation.

Of ten documents or more, whole documents are held out in the order of their content's SHA-256, so that the
choice depends on nothing else, until they are a tenth of the bytes. Documents longer than a hundredth of the
text are passed over as long as enough others remain: one of them would decide every loss. Of fewer than ten
documents the last tenth of each is held out. Nothing is in both parts: exact duplicates are dropped
beforehand.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from poslab.data.tokens import character_start

WHOLE_DOCUMENTS_FROM = 10


@dataclass(frozen=True)
class Spool:
    """Documents one after the other in a file, so that their number and size are not limited by memory."""

    ranges: NDArray[np.int64]  # (n, 2) begin and end in the file
    hashes: NDArray[np.uint64]  # (n,) the first eight bytes of each document's SHA-256

    def __len__(self) -> int:
        return len(self.ranges)

    def without_duplicates(self) -> "Spool":
        """Return each document once, in the same order. Two with the same 64-bit hash count as one."""
        first = np.sort(np.unique(self.hashes, return_index=True)[1])
        return Spool(self.ranges[first], self.hashes[first])


def spool(documents: Iterable[bytes], file: BinaryIO) -> Spool:
    """Append documents to `file`; empty ones are left out."""
    position = file.tell()
    ends = [position]
    hashes = []
    for document in documents:
        if document:
            file.write(document)
            position += len(document)
            ends.append(position)
            hashes.append(int.from_bytes(hashlib.sha256(document).digest()[:8], "big"))
    ranges = np.stack([np.array(ends[:-1], dtype=np.int64), np.array(ends[1:], dtype=np.int64)], axis=1)
    return Spool(ranges, np.array(hashes, dtype=np.uint64))


def hold_out(documents: Spool, text: memoryview) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the training and the validation ranges of `text`, each (n, 2)."""
    if len(documents) >= WHOLE_DOCUMENTS_FROM:
        sizes = documents.ranges[:, 1] - documents.ranges[:, 0]
        for most in (int(sizes.sum()) // 100, int(sizes.sum())):
            held_out = _held_out_documents(documents, most)
            if held_out.any():
                return documents.ranges[~held_out], documents.ranges[held_out]
    starts, ends = documents.ranges.T
    cuts = np.array([character_start(text, int(cut)) for cut in ends - (ends - starts) // 10], dtype=np.int64)
    train = np.stack([starts, cuts], axis=1)
    validation = np.stack([cuts, ends], axis=1)
    return train[starts < cuts], validation[cuts < ends]


def _held_out_documents(documents: Spool, most: int) -> NDArray[np.bool_]:
    """Return (n,) which documents of at most `most` bytes are held out; none if they are under a tenth."""
    starts, ends = documents.ranges.T
    sizes = ends - starts
    total = int(sizes.sum())
    held_out = np.zeros(len(documents), dtype=np.bool_)
    taken = 0
    for index in np.argsort(documents.hashes, kind="stable"):
        if taken * 10 >= total:
            return held_out
        # A document that is most of the text stays in training.
        if sizes[index] <= most and (taken + int(sizes[index])) * 5 <= total:
            held_out[index] = True
            taken += int(sizes[index])
    return np.zeros_like(held_out)
