"""The runs that a running command will train, so that other commands can see which runs are abandoned.

A command lists them in a file beside the runs, and locks the file until the command ends or is killed:

    <study>/.command-<12 hexadecimal digits>.json      the names of its runs
"""

import fcntl
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from poslab.record.locks import is_taken, take

PATTERN = f".command-{'[0-9a-f]' * 12}.json"


@contextmanager
def announced(directories: Iterable[Path]) -> Iterator[None]:
    """List the runs in these directories for `active_runs` in other commands while the block runs."""
    directories = list(directories)
    with ExitStack() as stack:
        for folder in dict.fromkeys(directory.parent for directory in directories):
            names = [directory.name for directory in directories if directory.parent == folder]
            with suppress(OSError):  # runs are not listed if the file system is full or has no locks
                stack.enter_context(_announced(folder, names))
        yield


@contextmanager
def _announced(folder: Path, names: list[str]) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f".command-{uuid4().hex[:12]}.json"
    unlocked = path.with_suffix(".new")  # other commands remove a list that is not locked
    try:
        with unlocked.open("w") as file:
            take(file.fileno(), fcntl.LOCK_EX, path)
            file.write(json.dumps(names))
            file.flush()
            unlocked.rename(path)
            yield
    finally:
        unlocked.unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def active_runs(folder: Path) -> dict[str, float]:
    """Return the runs in a study's `folder` that running commands will train, with the time of listing.

    Remove the files of commands that were killed.
    """
    names: dict[str, float] = {}
    for path in folder.glob(PATTERN):
        with suppress(OSError, ValueError):
            if is_taken(path):
                names |= dict.fromkeys(map(str, json.loads(path.read_text())), path.stat().st_mtime)
            elif path.is_file() and not path.is_symlink():
                path.unlink(missing_ok=True)
    return names
