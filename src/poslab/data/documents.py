"""The documents of a text, read once: copied into a file, and surveyed.

The file stays until the tokens are written: a text may be a download, or may change in the meantime.
"""

import hashlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poslab.config.schema import ConfigError
from poslab.data.sources import TextSource
from poslab.data.tokens import FileText, Text

PIECE = 2**20  # the most bytes of a document in a file that are in memory at once


class Survey(NamedTuple):
    """Sizes and hashes of the n documents that are not empty."""

    sizes: NDArray[np.int64]  # (n,) bytes
    hashes: NDArray[np.uint64]  # (n,) the first eight bytes of each document's SHA-256
    given: int | None  # how many come before the source's own validation documents; None: it has none
    digest: str  # SHA-256 of the whole text


def survey(source: TextSource, copy: BinaryIO | None = None) -> Survey:
    """Read the documents of a source and, with `copy`, write them to that file.

    Raises ConfigError if the source has no text.
    """
    whole, training_documents = hashlib.sha256(), None
    sizes, hashes = array("q"), array("Q")
    for validating, documents in enumerate((source.read(), source.read_validation())):
        whole.update(b"held out" if documents is None else b"documents")
        if validating and documents is not None:
            training_documents = len(sizes)
        for document in documents or ():
            whole.update(len(document).to_bytes(8, "big"))
            single = hashlib.sha256()
            for begin in range(0, len(document), PIECE):
                piece = document[begin : begin + PIECE]
                whole.update(piece)
                single.update(piece)
                if copy is not None:
                    copy.write(piece)
            if len(document):
                sizes.append(len(document))
                hashes.append(int.from_bytes(single.digest()[:8], "big"))
    if not sizes:
        raise ConfigError(f"{source.label()} has no text")
    known = np.array(sizes, dtype=np.int64), np.array(hashes, dtype=np.uint64)
    return Survey(*known, training_documents, whole.hexdigest())


def copied(path: Path, sizes: NDArray[np.int64]) -> Iterator[Text]:
    """Yield the documents of a file that `survey` has written. Those above PIECE bytes stay on the disk."""
    begin = 0
    with path.open("rb") as file:
        for size in sizes.tolist():
            yield file.read(size) if size <= PIECE else FileText(path, begin, size)
            begin = file.seek(begin + size)
