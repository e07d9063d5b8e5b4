"""Locks that end with their process: for training a run, and for writing a study's files."""

import errno
import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from poslab.config.errors import FAILED, UserError
from poslab.record.files import FULL, ROOM

LOOK = 0.05  # seconds between two attempts
GLANCE = 1.0  # seconds of attempts: `is_taken` holds the lock for less
WAY_OUT = "keep the records on a local disk, or on a network drive that is mounted with locks"
UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # the errors of a file system without locks


class TakenError(UserError):
    """Error raised if another process has the lock."""

    status = FAILED


def take(file: int, kind: int, path: Path, way_out: str = WAY_OUT) -> None:
    """Lock the open `file` at `path`. Raise BlockingIOError if another process has locked it.

    On a file system without locks, raise OSError with the path and the remedy `way_out`.
    """
    try:
        fcntl.flock(file, kind)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        message = f"its file system has no file locks ({error.strerror}); {way_out}"
        raise OSError(error.errno, message, str(path)) from None


@contextmanager
def file_lock(path: Path, wait: float = GLANCE) -> Iterator[None]:
    """Hold the lock file `path`. Raise TakenError if another process has it for more than `wait` seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _opened(path) as file:
        until = time.monotonic() + wait
        while True:
            try:
                take(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB, path)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise TakenError(f"another command has held {path} for long: is it stuck?") from None
                time.sleep(LOOK)
        yield


def _opened(path: Path) -> TextIO:
    """Open or create the lock file; on a full disk, wait for room."""
    while True:
        try:
            return path.open("a")
        except OSError as error:
            if error.errno not in FULL:
                raise
            time.sleep(ROOM)


def is_taken(path: Path) -> bool:
    """Return whether another process holds the lock file `path`.

    This takes a shared lock and releases it at once. Many processes may do so at the same time; `file_lock`
    tries again if it fails because of that.
    """
    try:
        with path.open() as file:
            take(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB, path)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def run_lock(directory: Path) -> Path:
    """Return the lock file for training a run: beside its `directory`, so that the run can be removed."""
    return directory.parent / f".{directory.name}.lock"
