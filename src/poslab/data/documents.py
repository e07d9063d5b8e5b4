"""The documents of a text: read once for what is known of each, and again for their content.

A text that its options fix (`pinned`) may be a download: it is read once, and lies in a file until its tokens
are written. Any other is read again from its source, which must give the same.
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
from poslab.data.tokens import Text

PIECE = 2**20  # bytes of a document in a file that are in memory at once


class Survey(NamedTuple):
    """What is known of the n documents that are not empty."""

    sizes: NDArray[np.int64]  # (n,) bytes
    hashes: NDArray[np.uint64]  # (n,) the first eight bytes of each one's SHA-256
    given: int | None  # how many of them the source gives to train on, the others to validate on; None: all
    digest: str  # SHA-256 of the whole


class Reading:
    """One reading of a source, in which `digest` becomes the SHA-256 of the whole and `given` is counted."""

    def __init__(self, source: TextSource) -> None:
        self._source = source
        self._digest = hashlib.sha256()
        self.given: int | None = None

    def __iter__(self) -> Iterator[Text]:
        """Yield the documents to train on, then those to validate on, without empty ones."""
        count = 0
        for validating, documents in enumerate((self._source.read(), self._source.read_validation())):
            self._digest.update(b"held out" if documents is None else b"documents")
            if validating and documents is not None:
                self.given = count
            for document in documents or ():
                self._digest.update(len(document).to_bytes(8, "big"))
                for piece in pieces(document):
                    self._digest.update(piece)
                if len(document):
                    count += 1
                    yield document

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()


def pieces(document: Text) -> Iterator[bytes]:
    """Yield a document in pieces, of which one of a file is read at a time."""
    for begin in range(0, len(document), PIECE):
        yield document[begin : begin + PIECE]


def survey(source: TextSource, copy: BinaryIO | None = None) -> Survey:
    """Read a source once, and write its text to the file `copy` if there is one.

    Raises ConfigError where it holds no text.
    """
    reading = Reading(source)
    sizes, hashes = array("q"), array("Q")
    for document in reading:
        digest = hashlib.sha256()
        for piece in pieces(document):
            digest.update(piece)
            if copy is not None:
                copy.write(piece)
        sizes.append(len(document))
        hashes.append(int.from_bytes(digest.digest()[:8], "big"))
    if not sizes:
        raise ConfigError(f"{source.label()} holds no text")
    return Survey(
        np.array(sizes, dtype=np.int64), np.array(hashes, dtype=np.uint64), reading.given, reading.digest
    )


def copied(path: Path, sizes: NDArray[np.int64], first: int) -> Iterator[tuple[int, Text]]:
    """Yield documents of a file that `survey` has written from the number `first` on, with their numbers."""
    with path.open("rb") as file:
        file.seek(int(sizes[:first].sum()))
        for number in range(first, len(sizes)):
            yield number, file.read(int(sizes[number]))


def read_again(
    source: TextSource, sizes: NDArray[np.int64], digest: str, first: int
) -> Iterator[tuple[int, Text]]:
    """Yield documents of a source from the number `first` on, with their numbers.

    Raises ConfigError where it is not what it was by the survey, at the end if not before.
    """
    changed = ConfigError(f"{source.label()} changed while it was read; try again")
    reading = Reading(source)
    count = 0
    for number, document in enumerate(reading):
        if number >= len(sizes) or len(document) != sizes[number]:
            raise changed
        count += 1
        if number >= first:
            yield number, document
    if count != len(sizes) or reading.digest != digest:
        raise changed
