"""The documents of a text: read once for what is known of each, and again for their content.

A text that its options fix (`pinned`) may be a download: it is read once, and spooled to files, each of which
is removed when its documents are written as tokens. Any other is read again from its source, which must give
the same.
"""

import hashlib
from array import array
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from poslab.config.schema import ConfigError
from poslab.data.sources import TextSource
from poslab.data.tokens import Text

PIECE = 2**20  # bytes of a document in a file that are in memory at once
SPOOLED = 2**26  # bytes, from which on the next document is in another file


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
    """Yield a document as it is where it is in memory, else in pieces."""
    if isinstance(document, bytes):
        yield document
    else:
        for begin in range(0, len(document), PIECE):
            yield document[begin : begin + PIECE]


def survey(source: TextSource, spool: "Spool | None" = None) -> Survey:
    """Read a source once, into `spool` if there is one. Raises ConfigError where it holds no text."""
    reading = Reading(source)
    sizes, hashes = array("q"), array("Q")
    for document in reading:
        digest = hashlib.sha256()
        for piece in pieces(document):
            digest.update(piece)
            if spool is not None:
                spool.write(piece)
        if spool is not None:
            spool.end_document()
        sizes.append(len(document))
        hashes.append(int.from_bytes(digest.digest()[:8], "big"))
    if spool is not None:
        spool.close()
    if not sizes:
        raise ConfigError(f"{source.label()} holds no text")
    return Survey(
        np.array(sizes, dtype=np.int64), np.array(hashes, dtype=np.uint64), reading.given, reading.digest
    )


class Documents(Protocol):
    """The documents of a survey."""

    def since(self, first: int) -> Iterator[tuple[int, Text]]:
        """Yield the documents from the number `first` on, with their numbers."""

    def written(self, first: int) -> None:
        """Take notice that no document before the number `first` is needed any more."""


class ReadAgain:
    """Documents of a source whose content is known by its digest."""

    def __init__(self, source: TextSource, sizes: NDArray[np.int64], digest: str) -> None:
        self._source, self._sizes, self._content = source, sizes, digest

    def since(self, first: int) -> Iterator[tuple[int, Text]]:
        """Raise ConfigError where the source is not what it was, at the end if not before."""
        reading = Reading(self._source)
        count = 0
        for number, document in enumerate(reading):
            if number >= len(self._sizes) or len(document) != self._sizes[number]:
                raise self._changed()
            count += 1
            if number >= first:
                yield number, document
        if count != len(self._sizes) or reading.digest != self._content:
            raise self._changed()

    def written(self, first: int) -> None:
        """Leave the source as it is."""

    def _changed(self) -> ConfigError:
        return ConfigError(f"{self._source.label()} changed while it was read; try again")


class Spool:
    """Documents one after the other in files of a folder, as they are written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = self._size = 0
        self._file: BinaryIO | None = None

    def write(self, piece: bytes) -> None:
        """Append a piece of a document."""
        if self._file is None:
            self._file = spool_file(self._folder, self._number).open("wb")
        self._file.write(piece)
        self._size += len(piece)

    def end_document(self) -> None:
        """Have the next document begin in another file where this one is full."""
        if self._size >= SPOOLED:
            self.close()
            self._number, self._size = self._number + 1, 0

    def close(self) -> None:
        """End the file that is being written."""
        if self._file is not None:
            self._file.close()
        self._file = None


def spool_file(folder: Path, number: int) -> Path:
    """Return the file of this number."""
    return folder / f"text.{number:06}"


class Spooled:
    """The documents that a Spool has written."""

    def __init__(self, folder: Path, sizes: NDArray[np.int64]) -> None:
        self._folder, self._sizes = folder, sizes
        self._firsts = _firsts(sizes)
        self._removed = 0

    def since(self, first: int) -> Iterator[tuple[int, Text]]:
        """Raise OSError where a file is missing."""
        bounds = [*self._firsts, len(self._sizes)]
        for number, (begin, end) in enumerate(pairwise(bounds)):
            if end <= first:
                continue
            with spool_file(self._folder, number).open("rb") as file:
                file.seek(int(self._sizes[begin : max(begin, first)].sum()))
                for index in range(max(begin, first), end):
                    yield index, file.read(int(self._sizes[index]))

    def written(self, first: int) -> None:
        """Remove the files of which every document is before the number `first`."""
        ends = [*self._firsts[1:], len(self._sizes)]
        while self._removed < len(ends) and ends[self._removed] <= first:
            spool_file(self._folder, self._removed).unlink(missing_ok=True)
            self._removed += 1


def _firsts(sizes: NDArray[np.int64]) -> list[int]:
    """Return the number of the first document of each file of a spool."""
    ends = np.cumsum(sizes)
    firsts = [0]
    before = 0
    while (last := int(np.searchsorted(ends, before + SPOOLED))) < len(sizes) - 1:
        firsts.append(last + 1)
        before = int(ends[last])
    return firsts
