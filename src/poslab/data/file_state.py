"""Whether files may have changed, without reading them: by their sizes, times and inodes."""

import hashlib
import os
import time
from collections.abc import Iterable
from typing import NamedTuple

SETTLED = 2.0  # seconds: a change within this of another can leave a file's times as they were


def file_state(path: str | os.PathLike[str]) -> tuple[int, ...]:
    """Return what differs once a file has been changed or replaced. Raises OSError."""
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev


class FilesState(NamedTuple):
    """The state of several files."""

    digest: str  # SHA-256 of their paths and states
    newest: float  # the last time at which one of them changed, in seconds since 1970

    @property
    def settled(self) -> bool:
        """Whether a change from now on must show."""
        return time.time() - self.newest > SETTLED


def files_state(paths: Iterable[str | os.PathLike[str]]) -> FilesState | None:
    """Return the state of files in an order of theirs; None where one cannot be seen."""
    digest = hashlib.sha256()
    newest = 0
    try:
        for path in paths:
            state = file_state(path)
            digest.update(f"{os.path.abspath(path)}\0{state}\0".encode(errors="surrogateescape"))
            newest = max(newest, state[1], state[2])
    except OSError:
        return None
    return FilesState(digest.hexdigest(), newest / 1e9)
