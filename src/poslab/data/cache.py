"""Prepared texts, each made once and found again under a hash of what decides its tokens.

A text is prepared (build.py) under another name and renamed. Where the file system has locks, one process
prepares it while others wait, and one that was killed is resumed by the next; without locks, any number of
processes may prepare the same text at once.
"""

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poslab.config.schema import HELD_OUT, ConfigError, is_tokenizer_file
from poslab.data import sources, tokenizer_file
from poslab.data.corpus import FORMAT, Corpus, load, remember_written
from poslab.data.directories import cache_directory, planning_directory
from poslab.record.remembered import Remembered
from poslab.record.seal import DamagedError

if TYPE_CHECKING:
    from poslab.data.documents import Survey

UNFINISHED = re.compile(r"[0-9a-f]{32}\.[0-9a-f]{8}\.unfinished")
RESUMED = "0" * 8  # in the name of an unfinished directory that the next command resumes
ABANDONED = 7 * 24 * 3600  # seconds; an older unfinished directory was left by a process that was killed
TEXTS = 1000  # of which the digests are remembered


def prepare(data: Mapping[str, Any]) -> Corpus:
    """Return the corpus that the section `data` of a configuration describes. Raises ConfigError."""
    source = sources.find(data)
    name = source.label()
    content, surveyed = (None, None) if source.pinned else _content(source)
    key = _key(source, content)
    root = cache_directory()
    directory = root / key[:32]
    with contextlib.suppress(DamagedError):  # another process may be writing it again
        if corpus := load(directory, name):
            return corpus
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(root / f"{key[:32]}.lock") as alone:
            try:
                if corpus := load(directory, name):
                    return corpus
            except DamagedError as error:
                print(f"poslab: {error}; the text is prepared again", file=sys.stderr)
                _remove(directory)
            _remove_abandoned(root, directory)
            try:
                _build(source, key, content, surveyed, directory, bool(alone))
            except DamagedError as error:  # what a killed process has left may be
                print(f"poslab: {error}; the text is prepared from its beginning", file=sys.stderr)
                _build(source, key, content, surveyed, directory, bool(alone))
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


def _content(source: sources.TextSource) -> "tuple[str, Survey | None]":
    """Return the SHA-256 of a text and, where it was read for that, what is known of it.

    A text in files that are as they were is not read again.
    """
    before = source.files_state()
    if before is None:
        surveyed = _survey(source)
        return surveyed.digest, surveyed
    options = source.model_dump(mode="json", exclude={"path", "vocabulary", "windows", "held_out"})
    about = [FORMAT, platform.node(), source.label(), options, before.digest]
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    known = Remembered(planning_directory() / "texts.json", TEXTS)
    if digest := known.get(key):
        return str(digest), None
    settled = before.settled
    surveyed = _survey(source)
    if settled and source.files_state() == before:
        known.put(key, surveyed.digest)
        known.save()
    return surveyed.digest, surveyed


def _survey(source: sources.TextSource) -> "Survey":
    from poslab.data.documents import survey  # not needed for a text that is prepared already

    return survey(source)


def _key(source: sources.TextSource, content: str | None) -> str:
    """Return a hash of what decides the tokens; `content` is the digest of a text that no options fix."""
    decided_by = (
        source.model_dump(mode="json", exclude={"windows"})
        if content is None
        else {"vocabulary": source.vocabulary, "held_out": source.held_out}
    )
    if source.held_out == HELD_OUT:
        del decided_by["held_out"]  # as before there was a choice
    if is_tokenizer_file(source.vocabulary):
        decided_by["vocabulary"] = tokenizer_file.digest(Path(str(source.vocabulary)))
    return hashlib.sha256(json.dumps([FORMAT, decided_by, content], sort_keys=True).encode()).hexdigest()


def _build(
    source: sources.TextSource,
    key: str,
    content: str | None,
    surveyed: "Survey | None",
    directory: Path,
    resumable: bool,
) -> None:
    """Prepare a text in an unfinished directory and rename that to `directory`.

    Where it is `resumable`, a stop or a kill leaves it to the next command. Errors leave nothing.
    """
    from poslab.data.build import build
    from poslab.data.workers import KilledError

    unfinished = _unfinished_name(directory, RESUMED if resumable else uuid.uuid4().hex[:8])
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
            remember_written(directory)
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
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
            alone = True
        yield alone


def _remove(directory: Path) -> None:
    """Remove a directory, renamed first so that no process reads half of it. Mapped files stay readable."""
    aside = _unfinished_name(directory, uuid.uuid4().hex[:8])
    with contextlib.suppress(FileNotFoundError):
        directory.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _unfinished_name(directory: Path, which: str) -> Path:
    return directory.with_name(f"{directory.name}.{which}.unfinished")


def _remove_abandoned(root: Path, directory: Path) -> None:
    """Remove unfinished directories that were left behind, by their exact names and never through a link.

    The one that is resumed as `directory` stays.
    """
    for path in root.iterdir():
        with contextlib.suppress(OSError):
            unfinished = UNFINISHED.fullmatch(path.name) and not path.is_symlink()
            resumed = path == _unfinished_name(directory, RESUMED)
            if unfinished and not resumed and time.time() - path.stat().st_mtime > ABANDONED:
                shutil.rmtree(path, ignore_errors=True)
