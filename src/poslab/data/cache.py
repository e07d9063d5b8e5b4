"""Read, split and tokenize a text once, and cache it under a hash of what decides the tokens.

A prepared directory is written under another name and renamed, so that any number of runs may prepare the
same text at once. Where the file system has locks, one run prepares it while the others wait.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poslab.config.schema import ConfigError, is_tokenizer_file
from poslab.data import sources, tokenizer_file
from poslab.data.corpus import FORMAT, Corpus, load, write_manifest
from poslab.data.directories import cache_directory
from poslab.data.split import hold_out, spool
from poslab.data.tokenizer_file import TokenizerFile
from poslab.data.tokens import Bpe, Bytes, Tokenizer
from poslab.record.seal import DamagedError

UNFINISHED = re.compile(r"[0-9a-f]{32}\.[0-9a-f]{8}\.unfinished")
ABANDONED = 24 * 3600  # seconds; an older unfinished directory was left by a process that was killed


def prepare(data: Mapping[str, Any]) -> Corpus:
    """Return the corpus that the section `data` of a configuration describes. Raises ConfigError."""
    source = sources.find(data)
    name = source.label()
    content = None if source.pinned else _digest(source)
    decided_by = (
        source.model_dump(mode="json", exclude={"windows"})
        if content is None
        else {"vocabulary": source.vocabulary}
    )
    if is_tokenizer_file(source.vocabulary):
        decided_by["vocabulary"] = tokenizer_file.digest(Path(str(source.vocabulary)))
    key = hashlib.sha256(json.dumps([FORMAT, decided_by, content], sort_keys=True).encode()).hexdigest()
    root = cache_directory()
    directory = root / key[:32]
    with contextlib.suppress(DamagedError):  # another process may be writing it again
        if corpus := load(directory, name):
            return corpus
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(root / f"{key[:32]}.lock"):
            try:
                if corpus := load(directory, name):
                    return corpus
            except DamagedError as error:
                print(f"poslab: {error}; the text is prepared again", file=sys.stderr)
                _remove(directory)
            _remove_abandoned(root)
            with _replacing(directory) as unfinished:
                _build(source, key, unfinished)
                if content is not None and _digest(source) != content:
                    raise ConfigError(f"{name} changed while it was read; try again")
    except OSError as error:
        raise ConfigError(
            f"cannot write prepared data to {root}: {error.strerror}; set POSLAB_CACHE"
        ) from error
    try:
        corpus = load(directory, name)
    except DamagedError as error:
        raise ConfigError(f"{error} as soon as it is written: set POSLAB_CACHE to another drive") from None
    if corpus is None:
        raise ConfigError(f"{directory} was removed while it was written: give the command again")
    return corpus


def _digest(source: sources.TextSource) -> str:
    digest = hashlib.sha256()
    for part in (source.read(), source.read_validation()):
        digest.update(b"held out" if part is None else b"documents")
        for document in part or ():
            digest.update(len(document).to_bytes(8, "big"))
            digest.update(document)
    return digest.hexdigest()


def _build(source: sources.TextSource, key: str, directory: Path) -> None:
    """Fill `directory`. Documents are spooled to a file meanwhile, so that they may be larger than memory."""
    path = directory / "text"
    with path.open("wb") as file:
        documents = spool(source.read(), file).without_duplicates()
        given = source.read_validation()
        validating = None if given is None else spool(given, file).without_duplicates()
    if not len(documents):
        raise ConfigError(f"{source.label()} holds no text")
    text = np.memmap(path, dtype=np.uint8, mode="r").data
    if validating is None:
        train, validation = hold_out(documents, text)
        count = len(documents)
    else:
        train, validation = documents.ranges, validating.ranges
        count = len(documents) + len(validating)
    entries = source.vocabulary
    tokenizer: Tokenizer
    if entries == "bytes":
        tokenizer = Bytes()
    elif is_tokenizer_file(entries):
        tokenizer = TokenizerFile(Path(str(entries)))
    else:
        tokenizer = Bpe(_documents(text, train), int(entries))
    lengths = np.array([len(spelling) for spelling in tokenizer.spellings], dtype="<i8")
    for name, ranges in (("train", train), ("validation", validation)):
        offsets, written = _write_tokens(
            directory / f"{name}.bin", tokenizer, lengths, _documents(text, ranges)
        )
        # No text can cause this: a tokenizer that lost bytes would make every bits per byte wrong.
        assert written == int((ranges[:, 1] - ranges[:, 0]).sum()), (
            f"{written} bytes of {name} after tokenization"
        )
    offsets.astype("<i8").tofile(directory / "documents.bin")
    lengths.tofile(directory / "lengths.bin")
    (directory / "spellings.bin").write_bytes(b"".join(tokenizer.spellings))
    path.unlink()
    write_manifest(directory, key, tokenizer.dtype, len(lengths), tokenizer.separator, count)


def _documents(text: memoryview, ranges: NDArray[np.int64]) -> list[memoryview]:
    return [text[begin:end] for begin, end in ranges.tolist()]


def _write_tokens(
    path: Path, tokenizer: Tokenizer, lengths: NDArray[np.int64], documents: Iterable[memoryview]
) -> tuple[NDArray[np.int64], int]:
    """Write the tokens with separators between documents.

    Returns the (n, 2) offsets of the documents and the bytes that all their tokens stand for.
    """
    offsets: list[tuple[int, int]] = []
    position = size = 0
    with path.open("wb") as file:
        for tokens in tokenizer.encode(documents):
            if offsets:
                file.write(np.array([tokenizer.separator], dtype=tokenizer.dtype).tobytes())
                position += 1
            file.write(tokens.tobytes())
            offsets.append((position, position + len(tokens)))
            position += len(tokens)
            size += int(lengths[tokens].sum())
        file.flush()
        os.fsync(file.fileno())
    return np.array(offsets, dtype=np.int64).reshape(-1, 2), size


@contextlib.contextmanager
def _replacing(directory: Path) -> Iterator[Path]:
    """Yield an unfinished directory, renamed to `directory` after the block and removed if it raises."""
    unfinished = _unfinished_name(directory)
    unfinished.mkdir()
    try:
        yield unfinished
        try:
            unfinished.rename(directory)
        except OSError:
            if not directory.exists():  # without locks another process can have been first
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Wait for another process that prepares the same; without locks (some network drives) both work."""
    with path.open("w") as file:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove(directory: Path) -> None:
    """Remove a directory, renamed first so that no process reads half of it. Mapped files stay readable."""
    aside = _unfinished_name(directory)
    with contextlib.suppress(FileNotFoundError):
        directory.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _unfinished_name(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.{uuid.uuid4().hex[:8]}.unfinished")


def _remove_abandoned(root: Path) -> None:
    """Remove unfinished directories that were left behind, by their exact names and never through a link."""
    for path in root.iterdir():
        with contextlib.suppress(OSError):
            unfinished = UNFINISHED.fullmatch(path.name) and not path.is_symlink()
            if unfinished and time.time() - path.stat().st_mtime > ABANDONED:
                shutil.rmtree(path, ignore_errors=True)
