"""How a prepared text is written: in an unfinished directory, which is renamed once it is whole.

Where the file system has locks, one process prepares a text while others wait, and one that was killed is
resumed by the next on the same machine; without locks, any number of processes may prepare the same text at
once.
"""

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from poslab.config.schema import ConfigError
from poslab.data.build import build
from poslab.data.corpus import Corpus, load, read_manifest
from poslab.data.documents import Survey
from poslab.data.sources import TextSource
from poslab.data.verification import remember_verified
from poslab.data.workers import KilledError
from poslab.record.seal import DamagedError

UNFINISHED = re.compile(r"[0-9a-f]{32}\.[0-9a-f]{8}\.unfinished")
ABANDONED = 7 * 24 * 3600  # seconds; an older unfinished directory was left by a process that was killed


def write(
    source: TextSource, key: str, content: str | None, surveyed: Survey | None, directory: Path
) -> Corpus:
    """Prepare a text in `directory` unless another process does, and return it.

    `content` is the text's digest and `surveyed` what is known of it, where it was read already. Raises
    ConfigError.
    """
    name, root = source.label(), directory.parent
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(root / f"{directory.name}.lock") as alone:
            try:
                if corpus := load(directory, name):
                    return corpus
            except DamagedError as error:
                print(f"poslab: {error}; the text is prepared again", file=sys.stderr)
                _remove(directory)
            _remove_abandoned(root, directory)
            try:
                _build(source, key, content, surveyed, directory, alone)
            except DamagedError as error:  # what a killed process has left may be
                print(f"poslab: {error}; the text is prepared from its beginning", file=sys.stderr)
                _build(source, key, content, surveyed, directory, alone)
            corpus = load(directory, name)
    except OSError as error:
        raise ConfigError(
            f"cannot write prepared data to {root}: {error.strerror}; set POSLAB_CACHE"
        ) from error
    except DamagedError as error:
        raise ConfigError(f"{error} as soon as it is written: set POSLAB_CACHE to another drive") from None
    if corpus is None:
        raise ConfigError(f"{directory} was removed while it was written: give the command again")
    return corpus


def _build(
    source: TextSource,
    key: str,
    content: str | None,
    surveyed: Survey | None,
    directory: Path,
    resumable: bool,
) -> None:
    """Prepare a text in an unfinished directory and rename that to `directory`.

    Where it is `resumable`, a stop or a kill leaves it to the next command. Errors leave nothing.
    """
    unfinished = _resumed_name(directory) if resumable else _new_name(directory)
    unfinished.mkdir(exist_ok=True)
    os.utime(unfinished)
    try:
        build(source, key, content, surveyed, unfinished)
        try:
            unfinished.rename(directory)
        except OSError:
            if not directory.exists():  # without locks another process can have been first
                raise
            shutil.rmtree(unfinished, ignore_errors=True)
        else:
            manifest = read_manifest(directory)
            remember_verified(directory, manifest["sizes"], manifest["blocks"])
    except BaseException as error:
        stopped = isinstance(error, KilledError) or not isinstance(error, Exception)
        if not (stopped and resumable):
            shutil.rmtree(unfinished, ignore_errors=True)
        raise


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Iterator[bool]:
    """Wait for another process that prepares the same, and yield True.

    Without locks (some network drives) both work: yield False.
    """
    alone = False
    with path.open("w") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
            alone = True
        yield alone


def _remove(directory: Path) -> None:
    """Remove a directory, renamed first so that no process reads half of it. Mapped files stay readable."""
    aside = _new_name(directory)
    with contextlib.suppress(FileNotFoundError):
        directory.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _new_name(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.{uuid.uuid4().hex[:8]}.unfinished")


def _resumed_name(directory: Path) -> Path:
    """Return what a stopped command leaves: one for each machine, since not every lock reaches others."""
    machine = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
    return directory.with_name(f"{directory.name}.{machine}.unfinished")


def _remove_abandoned(root: Path, directory: Path) -> None:
    """Remove unfinished directories that were left behind, by their exact names and never through a link.

    The one that is resumed as `directory` stays.
    """
    for path in root.iterdir():
        with contextlib.suppress(OSError):
            unfinished = UNFINISHED.fullmatch(path.name) and not path.is_symlink()
            resumed = path == _resumed_name(directory)
            if unfinished and not resumed and time.time() - path.stat().st_mtime > ABANDONED:
                shutil.rmtree(path, ignore_errors=True)
