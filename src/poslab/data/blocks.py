"""Digests of the blocks of files that are written, and of what was written, read back."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from poslab.data import verification
from poslab.data.verification import Blocks
from poslab.record.seal import DamagedError


class BlockHash:
    """The digests of the blocks of a file, as it is written."""

    def __init__(self, content: bytes = b"") -> None:
        self._digests: list[str] = []
        self._digest = hashlib.sha256()
        self._size = 0  # bytes in the block that is not full yet
        self.update(content)

    def update(self, content: bytes) -> None:
        """Append to the file."""
        remaining = memoryview(content)
        while len(remaining):
            part = remaining[: verification.BLOCK - self._size]
            self._digest.update(part)
            self._size += len(part)
            remaining = remaining[len(part) :]
            if self._size == verification.BLOCK:
                self._digests.append(self._digest.hexdigest())
                self._digest, self._size = hashlib.sha256(), 0

    def digests(self) -> list[str]:
        """Return the SHA-256 of each block, of the last one up to the end of the file."""
        return [*self._digests, *([self._digest.hexdigest()] if self._size else [])]


def content_digest(directory: Path, names: Sequence[str], blocks: Blocks) -> str:
    """Return SHA-256 over the files only: the fingerprint in records of corpora of format 2.

    Raises DamagedError where a file does not have these `blocks`.
    """
    digest = hashlib.sha256()
    for name in names:
        digest.update(f"{name} {(directory / name).stat().st_size}\n".encode())
        found = BlockHash()
        with (directory / name).open("rb") as file, ThreadPoolExecutor(1) as pool:
            for content in iter(lambda: file.read(verification.BLOCK), b""):
                hashing = pool.submit(found.update, content)  # hashing leaves Python's lock
                digest.update(content)
                hashing.result()
        if found.digests() != blocks[name]:
            raise DamagedError(f"{directory / name} is damaged")
    return digest.hexdigest()
