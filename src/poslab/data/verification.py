"""Whether prepared text is as it was written: its files, and the facts that say how to read them.

The manifest is sealed and lists the SHA-256 of every block of every file. The fingerprint is over all of
these and over the facts, so it changes with the text, with how its tokens are stored and with what they mean.

Files are verified once on a machine, when they are written or first read there, and again after any change of
a file's size, times or inode. What was verified is remembered beside them.
"""

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from poslab.data.file_state import file_state
from poslab.record.remembered import Remembered
from poslab.record.seal import DamagedError

BLOCK = 2**24  # bytes that are hashed at once: blocks are shared among the cores
THREADS = 8  # of which each holds a block in memory
VERIFIED = "verified.json"
MACHINES = 100  # of which each reads the files for itself, where the drive is shared

Blocks = Mapping[str, Sequence[str]]  # the SHA-256 of each block, by the file's name


def block_digests(directory: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the SHA-256 of each block of the files. Raises OSError."""
    sizes = {name: (directory / name).stat().st_size for name in names}
    places = [(name, begin) for name, size in sizes.items() for begin in range(0, size, BLOCK)]
    threads = min(THREADS, os.cpu_count() or 1) if len(places) > THREADS else 1
    digests: dict[str, list[str]] = {name: [] for name in names}
    with ThreadPoolExecutor(threads) as pool:  # hashing leaves Python's lock
        found = pool.map(lambda place: _digest(directory / place[0], place[1]), places)
        for (name, _), digest in zip(places, found, strict=True):
            digests[name].append(digest)
    return digests


def _digest(path: Path, begin: int) -> str:
    with path.open("rb") as file:
        file.seek(begin)
        return hashlib.sha256(file.read(BLOCK)).hexdigest()


def fingerprint(facts: Mapping[str, Any], sizes: Mapping[str, int], blocks: Blocks) -> str:
    """Return SHA-256 over the facts about a text and over all of its files."""
    text = json.dumps([facts, sizes, blocks], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def verify(directory: Path, sizes: Mapping[str, int], blocks: Blocks) -> None:
    """Raise DamagedError, which names the file, where a file differs from the manifest."""
    state = _state(directory, sizes, blocks)
    verified = _verified(directory)
    if verified.get(state) is not True:
        _compare(directory, blocks)
        verified.put(state, True)
        verified.save()


def remember_verified(directory: Path, sizes: Mapping[str, int], blocks: Blocks) -> None:
    """Have `verify` not read the files as long as they stay as they are. Raises DamagedError, see there."""
    verified = _verified(directory)
    verified.put(_state(directory, sizes, blocks), True)
    verified.save()


def _verified(directory: Path) -> Remembered:
    return Remembered(directory / VERIFIED, MACHINES)


def _state(directory: Path, sizes: Mapping[str, int], blocks: Blocks) -> str:
    """Return a key for the files as they are on this machine, of the sizes that the manifest lists."""
    states = {}
    for name, size in sizes.items():
        try:
            states[name] = file_state(directory / name)
        except OSError:
            raise DamagedError(f"{directory / name} is missing") from None
        if states[name][0] != size:
            raise DamagedError(f"{directory / name} is damaged: {states[name][0]} bytes instead of {size}")
    about = [platform.node(), str(directory), states, blocks]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _compare(directory: Path, blocks: Blocks) -> None:
    try:
        found = block_digests(directory, list(blocks))
    except OSError as error:
        raise DamagedError(f"{directory} cannot be read: {error.strerror}") from None
    for name, digests in blocks.items():
        for number, (digest, written) in enumerate(zip(found[name], digests, strict=False)):
            if digest != written:
                part = "" if len(digests) == 1 else f" in block {number + 1} of {len(digests)}"
                raise DamagedError(f"{directory / name} is damaged{part}")
        if len(found[name]) != len(digests):
            raise DamagedError(f"{directory / name} is damaged")


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
            part = remaining[: BLOCK - self._size]
            self._digest.update(part)
            self._size += len(part)
            remaining = remaining[len(part) :]
            if self._size == BLOCK:
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
            for content in iter(lambda: file.read(BLOCK), b""):
                hashing = pool.submit(found.update, content)  # hashing leaves Python's lock
                digest.update(content)
                hashing.result()
        if found.digests() != blocks[name]:
            raise DamagedError(f"{directory / name} is damaged")
    return digest.hexdigest()
