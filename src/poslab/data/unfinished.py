"""Write a prepared text into an unfinished directory, which is renamed when it is complete.

One process prepares a text while others wait. If it is killed, the next one on the same machine resumes.
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
from pathlib import Path
from typing import cast

from poslab.config.schema import ConfigError
from poslab.data.build import build
from poslab.data.corpus import Corpus, load
from poslab.data.sources import TextSource
from poslab.record.seal import DamagedError

UNFINISHED = re.compile(r"[0-9a-f]{32}\.[0-9a-f]{8}\.unfinished")
ABANDONED = 7 * 24 * 3600  # seconds; an unfinished directory older than this was left by a killed process


def write(source: TextSource, content: str | None, directory: Path) -> Corpus:
    """Prepare a text in `directory` unless another process has done so, and return it.

    `content` is the digest of a text that its options do not pin. Raises ConfigError.
    """
    name, root = source.label(), directory.parent
    try:
        root.mkdir(parents=True, exist_ok=True)
        with (root / f"{directory.name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                if corpus := load(directory, name):
                    return corpus
            except DamagedError as error:
                print(f"poslab: {error}; the text is prepared again", file=sys.stderr)
                shutil.rmtree(directory)
            _build(source, content, directory)
            return cast(Corpus, load(directory, name))
    except OSError as error:
        raise ConfigError(
            f"cannot write prepared data to {root}: {error.strerror}; set POSLAB_CACHE"
        ) from error


def _build(source: TextSource, content: str | None, directory: Path) -> None:
    """Prepare a text in an unfinished directory and rename that to `directory`.

    After an interrupt or a kill the next command resumes it; after an error it is removed. Each machine has
    its own directory, since not every file system shares locks between machines.
    """
    machine = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
    unfinished = directory.with_name(f"{directory.name}.{machine}.unfinished")
    unfinished.mkdir(exist_ok=True)
    os.utime(unfinished)
    _remove_abandoned(directory.parent)
    try:
        build(source, content, unfinished)
        unfinished.rename(directory)
    except Exception:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _remove_abandoned(root: Path) -> None:
    """Remove old unfinished directories, matched by their exact form of name and never through a link."""
    for path in root.iterdir():
        with contextlib.suppress(OSError):
            unfinished = UNFINISHED.fullmatch(path.name) and not path.is_symlink()
            if unfinished and time.time() - path.stat().st_mtime > ABANDONED:
                shutil.rmtree(path, ignore_errors=True)
