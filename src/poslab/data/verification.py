"""Whether files are as they were: those of a prepared text, with how to read them, and those of a source.

The manifest is sealed and lists the SHA-256 of every block of every file. The fingerprint is over all of
these and over the facts, so it changes with the text, with how its tokens are stored and with what they mean.

Files are verified once on a machine, when they are first read there, and again after any change of
a file's size, times or inode. What was verified is remembered beside them.
"""

import hashlib
import json
import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from poslab.record.remembered import Remembered
from poslab.record.seal import DamagedError

SETTLED = 2.0  # seconds: a change within this of another can leave a file's times as they were
BLOCK = 2**24  # bytes that are hashed at once
VERIFIED = "verified.json"
MACHINES = 100  # of which each reads the files for itself, where the drive is shared

Blocks = Mapping[str, Sequence[str]]  # the SHA-256 of each block, by the file's name


def block_digests(directory: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the SHA-256 of each block of the files. Raises OSError."""
    return {name: _digests(directory / name) for name in names}


def _digests(path: Path) -> list[str]:
    with path.open("rb") as file:
        return [hashlib.sha256(block).hexdigest() for block in iter(lambda: file.read(BLOCK), b"")]


def verify(directory: Path, blocks: Blocks) -> None:
    """Raise DamagedError, which names the file, where a file differs from the manifest."""
    state = files_state((directory / name for name in blocks), written_once=True)
    key = hashlib.sha256(json.dumps([platform.node(), state, blocks], sort_keys=True).encode()).hexdigest()
    verified = Remembered(directory / VERIFIED, MACHINES)
    if verified.get(key) is True:
        return
    for name, digests in blocks.items():
        try:
            found = block_digests(directory, [name])
        except OSError as error:  # which names no file where reading it fails
            raise DamagedError(f"{directory / name} cannot be read: {error.strerror}") from None
        if found[name] != digests:
            raise DamagedError(f"{directory / name} is damaged")
    verified.put(key, True)
    verified.save()


def files_state(paths: Iterable[str | os.PathLike[str]], written_once: bool = False) -> str | None:
    """Return SHA-256 over what differs once a file has been changed or replaced, in an order of theirs.

    None where one cannot be seen. Also where one that others may write was changed so shortly ago that
    another change might not show.
    """
    digest = hashlib.sha256()
    newest = 0
    try:
        for path in paths:
            found = os.stat(path)
            state = found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev
            digest.update(f"{os.path.abspath(path)}\0{state}\0".encode(errors="surrogateescape"))
            newest = max(newest, *state[1:3])
    except OSError:
        return None
    settled = time.time() - newest / 1e9 > SETTLED
    return digest.hexdigest() if settled or written_once else None
