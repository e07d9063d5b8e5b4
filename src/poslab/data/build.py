"""Write a text as tokens into files: in bounded memory, on all cores, resuming where a process was killed.

DIRECTORY/ has these files beside those of a prepared text (corpus.py), until it is complete:
    plan.npz            the documents, and which part of each is for training
    text                their text (documents.py)
    written.json        how much of the text is written as tokens, and the sizes of the files at that point
"""

import hashlib
import io
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poslab.config.schema import HELD_OUT, ConfigError, is_tokenizer_file
from poslab.data.ahead import ahead
from poslab.data.corpus import FILES, MANIFEST, TOKENIZER
from poslab.data.documents import copied, survey
from poslab.data.sources import TextSource
from poslab.data.split import first_of_each, held_out_share, hold_out
from poslab.data.tokenizer_file import read_tokenizer
from poslab.data.tokens import (
    Bytes,
    Encoded,
    FileText,
    Tokenizer,
    character_start,
    chunks,
    lengths,
    sample_of,
    train_bpe,
)
from poslab.data.verification import block_digests
from poslab.record.seal import sealed

# A shard is complete with this many bytes of text. Memory has one or two shards per core, and the result of
# the library for the one being encoded takes about 45 times as much.
SHARD = 2**20
PARTS = ("train.bin", "validation.bin", "documents.bin")
PLAN, TEXT, WRITTEN = "plan.npz", "text", "written.json"
SYNCED = 10.0  # seconds of work that a kill may lose
DUPLICATE = -1  # in place of the end of a document's training part

Shard = list["Piece"]  # encoded by one thread and written together


class Plan(NamedTuple):
    """The documents of a text, and which part of each is for training."""

    sizes: NDArray[np.int64]  # (n,) bytes of each document
    ends: NDArray[np.int64]  # (n,) the end of its training part, from 0 to its size; or DUPLICATE


class Piece(NamedTuple):
    """A piece of text that is encoded as a whole, and where it belongs."""

    text: bytes
    validating: bool
    begins: bool  # whether it begins the document, or the part that is held out
    ends: bool


def build(source: TextSource, content: str | None, directory: Path) -> None:
    """Write the text into `directory`, resuming from the files of a killed process if there are any.

    `content` is the digest of a text that its options do not pin. Raises ConfigError and OSError.
    """
    plan = _stored_plan(directory) or _make_plan(source, content, directory)
    tokenizer = _tokenizer(source.vocabulary, plan, directory)
    with ExitStack() as stack:
        parts = Parts(directory, tokenizer, stack)
        shards = _shards(_pieces(plan, directory, parts.text))
        for shard, (tokens, counts) in _encoded(shards, tokenizer):
            parts.append(shard, tokens, counts)
        parts.sync()
    _write(directory / "lengths.bin", lengths(tokenizer.spellings).tobytes())
    _write(directory / "spellings.bin", b"".join(tokenizer.spellings))
    facts = {
        "dtype": tokenizer.dtype.str,
        "vocabulary": len(tokenizer.spellings),
        "separator": tokenizer.separator,
        "documents": int((plan.ends != DUPLICATE).sum()),
    }
    sizes = {name: (directory / name).stat().st_size for name in FILES}
    blocks = block_digests(directory, FILES)
    identity = json.dumps([facts, sizes, blocks], sort_keys=True)  # of the text and how it is read
    # The tokenizer's file is not part of the fingerprint.
    tokenizers = [TOKENIZER] if (directory / TOKENIZER).exists() else []
    manifest = {
        **facts,
        "sizes": sizes,
        "blocks": blocks | block_digests(directory, tokenizers),
        "fingerprint": hashlib.sha256(identity.encode()).hexdigest(),
    }
    (directory / MANIFEST).write_text(sealed(manifest))
    for name in (WRITTEN, PLAN, TEXT):
        (directory / name).unlink(missing_ok=True)


def _make_plan(source: TextSource, content: str | None, directory: Path) -> Plan:
    """Copy the text, decide which part of it is held out, and write that plan to a file."""
    with (directory / TEXT).open("wb") as copy:
        surveyed = survey(source, copy)
        copy.flush()
        os.fsync(copy.fileno())
    if content not in (None, surveyed.digest):
        raise ConfigError(f"{source.label()} changed while it was read; try again")
    sizes, hashes = surveyed.sizes, surveyed.hashes
    training = len(sizes) if surveyed.given is None else surveyed.given
    first = np.concatenate([first_of_each(hashes[:training]), first_of_each(hashes[training:])])
    ends = np.where(first, sizes, DUPLICATE)
    if surveyed.given is not None:
        if source.held_out != HELD_OUT:
            raise ConfigError(
                f"data.held_out={source.held_out} has no effect on {source.label()}, which has its own "
                f"validation part: leave it at {HELD_OUT}"
            )
        ends[training:] = np.where(first[training:], 0, DUPLICATE)
    else:
        share = held_out_share(source.held_out, int(sizes[first].sum()))
        ends[first] = hold_out(sizes[first], hashes[first], share)
        for number in np.flatnonzero((ends > 0) & (ends < sizes)).tolist():
            document = FileText(directory / TEXT, int(sizes[:number].sum()), int(sizes[number]))
            ends[number] = character_start(document, int(ends[number]))
    stored = io.BytesIO()
    np.savez(stored, sizes=sizes, ends=ends)
    _write(directory / PLAN, stored.getvalue())
    return Plan(sizes, ends)


def _stored_plan(directory: Path) -> Plan | None:
    """Return the plan that a killed process has left; None if there is none. It is written after the text."""
    if not (directory / PLAN).exists():
        return None
    with np.load(directory / PLAN) as stored:
        return Plan(stored["sizes"], stored["ends"])


def _tokenizer(vocabulary: int | str, plan: Plan, directory: Path) -> Tokenizer:
    """Return the tokenizer of `data.vocabulary` and store its file; the one for bytes has none.

    A BPE is trained unless a killed process has already done so.
    """
    if vocabulary == "bytes":
        return Bytes()
    path = directory / TOKENIZER
    if is_tokenizer_file(vocabulary):
        tokenizer = read_tokenizer(Path(str(vocabulary)))
        shutil.copyfile(Path(str(vocabulary)).expanduser(), path)
        return tokenizer
    entries = int(vocabulary)
    if not path.exists():
        size = int(np.maximum(plan.ends, 0).sum())
        training = (piece.text for piece in _pieces(plan, directory) if not piece.validating)
        _write(path, train_bpe(sample_of(training, size), entries).encode())
    return read_tokenizer(path)


def _pieces(plan: Plan, directory: Path, written: int = 0) -> Iterator[Piece]:
    """Yield the text without duplicates, in pieces, skipping its first `written` bytes."""
    for document, cut in zip(copied(directory / TEXT, plan.sizes), plan.ends.tolist(), strict=True):
        if cut == DUPLICATE:
            continue
        for validating, begin, end in ((False, 0, cut), (True, cut, len(document))):
            start = begin
            for text in chunks(document, begin, end):
                stop = start + len(text)
                if written <= 0:
                    yield Piece(text, validating, start == begin, stop == end)
                start, written = stop, written - len(text)


def _shards(pieces: Iterable[Piece]) -> Iterator[Shard]:
    shard: Shard = []
    size = 0
    for piece in pieces:
        shard.append(piece)
        size += len(piece.text)
        if size >= SHARD:
            yield shard
            shard, size = [], 0
    if shard:
        yield shard


def _encoded(shards: Iterable[Shard], tokenizer: Tokenizer) -> Iterator[tuple[Shard, Encoded]]:
    """Yield the shards with their tokens, encoded in threads: the library releases the GIL."""
    count = _cores()

    def encoded(shard: Shard) -> tuple[Shard, Encoded]:
        return shard, tokenizer.encode([piece.text for piece in shard])

    return ahead(encoded, shards, count, count + count // 2 + 1)


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Parts:
    """The files with the tokens and with the bounds of validation documents; shards are appended to them."""

    def __init__(self, directory: Path, tokenizer: Tokenizer, stack: ExitStack) -> None:
        """Open the files in `stack` and drop everything after what a killed process has synced."""
        self._directory = directory
        self._itemsize = tokenizer.dtype.itemsize
        self._separator = np.array([tokenizer.separator], dtype=tokenizer.dtype).tobytes()
        self.text, sizes = _synced(directory)  # the bytes of text that are written; the size of each file
        self._files: list[BinaryIO] = []
        for name, size in zip(PARTS, sizes, strict=True):
            (directory / name).touch()
            self._files.append(stack.enter_context((directory / name).open("r+b")))
            self._files[-1].seek(size)
            self._files[-1].truncate()
        self._synced = time.monotonic()

    def append(self, pieces: Shard, tokens: NDArray[Any], counts: NDArray[np.int64]) -> None:
        """Write the tokens of a shard; `counts` has the number of tokens of each piece."""
        for piece, part in zip(pieces, np.split(tokens, np.cumsum(counts)[:-1]), strict=True):
            file = self._files[piece.validating]
            if piece.begins and file.tell():
                file.write(self._separator)
            if piece.begins and piece.validating:
                self._mark_document()
            file.write(part.tobytes())
            if piece.ends and piece.validating:
                self._mark_document()
            self.text += len(piece.text)
        if time.monotonic() - self._synced >= SYNCED:
            self.sync()

    def sync(self) -> None:
        """Wait until the files have reached the disk, and record how much is written."""
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
        entry = {"text": self.text, "sizes": [file.tell() for file in self._files]}
        _write(self._directory / WRITTEN, json.dumps(entry).encode())
        self._synced = time.monotonic()

    def _mark_document(self) -> None:
        _, validation, documents = self._files
        documents.write(np.array([validation.tell() // self._itemsize], dtype="<i8").tobytes())


def _synced(directory: Path) -> tuple[int, list[int]]:
    """Return the bytes of text that a killed process has written, and the files' sizes at that point."""
    try:
        entry = json.loads((directory / WRITTEN).read_bytes())
    except FileNotFoundError:
        return 0, [0, 0, 0]
    return entry["text"], entry["sizes"]


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically, so that it is complete if it exists."""
    unfinished = path.with_name(f"{path.name}.new")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
