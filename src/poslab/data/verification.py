"""Whether prepared text is as it was written: its files, and the facts that say how to read them.

The manifest is sealed and lists the SHA-256 of every block of every file. The fingerprint is over all of
these and over the facts, so it changes with the text, with how its tokens are stored and with what they mean.

Small corpora are verified whenever they are opened. Larger ones, which take seconds to minutes, are verified
once on a machine, and again after any change of a file's size, times or inode.
"""

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from poslab.data.directories import planning_directory
from poslab.record.remembered import Remembered
from poslab.record.seal import DamagedError

BLOCK = 2**24  # bytes that are hashed at once: blocks are shared among the cores
REHASH = 2**28  # bytes; smaller corpora are verified at each opening, which takes a fraction of a second
THREADS = 8  # of which each holds a block in memory
VERIFIED = 1000  # corpora that are remembered

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
    states = {}
    for name, size in sizes.items():
        try:
            state = (directory / name).stat()
        except OSError:
            raise DamagedError(f"{directory / name} is missing") from None
        if state.st_size != size:
            raise DamagedError(f"{directory / name} is damaged: {state.st_size} bytes instead of {size}")
        states[name] = (state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_dev)
    if sum(sizes.values()) <= REHASH:
        _compare(directory, blocks)
        return
    # The cache may lie on a drive that several machines share, each of which reads it for itself.
    about = [platform.node(), str(directory), states, blocks]
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    verified = Remembered(planning_directory() / "verified.json", VERIFIED)
    if verified.get(key) is not True:
        _compare(directory, blocks)
        verified.put(key, True)
        verified.save()


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


def content_digest(directory: Path, names: Sequence[str]) -> str:
    """Return SHA-256 over the files only: the fingerprint in records of corpora of format 2."""
    digest = hashlib.sha256()
    for name in names:
        digest.update(f"{name} {(directory / name).stat().st_size}\n".encode())
        with (directory / name).open("rb") as file:
            for block in iter(lambda: file.read(BLOCK), b""):
                digest.update(block)
    return digest.hexdigest()
