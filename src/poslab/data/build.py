"""A text as tokens in files, in bounded memory, on all cores, and resumed where a process was killed.

DIRECTORY/, beside the files of a prepared text (corpus.py) and until it is one:
    plan.npz            the documents and which part of each is to train on
    text                their text, where it may be a download (documents.py)
    tokenizer.json      of a BPE that was trained on them
    written.jsonl       a line per shard, once its tokens are written: where the next one begins, how long
                        the files are, and the SHA-256 of both and of what the shard has added to the files
"""

import hashlib
import io
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from poslab.config.schema import HELD_OUT, ConfigError, is_tokenizer_file
from poslab.data.corpus import FILES, FORMAT, MANIFEST
from poslab.data.documents import Survey, copied, read_again, survey
from poslab.data.sources import TextSource
from poslab.data.split import first_of_each, held_out_share, hold_out
from poslab.data.tokenizer_file import read_tokenizer
from poslab.data.tokens import (
    Bytes,
    Encoded,
    Text,
    Tokenizer,
    character_start,
    chunks,
    lengths,
    sample_of,
    train_bpe,
)
from poslab.data.verification import block_digests, content_digest, fingerprint
from poslab.record.seal import sealed

# Bytes of text, of a shard at least. Each core has one or two; what the library returns of the one that is
# encoded takes some 45 times as much.
SHARD = 2**20
PARTS = ("train.bin", "validation.bin", "documents.bin")
PLAN, TEXT, TOKENIZER, WRITTEN = "plan.npz", "text", "tokenizer.json", "written.jsonl"
DUPLICATE = -1  # in place of where the training part of a document ends

Place = tuple[int, int]  # a document, by its number, and the bytes of it that are before
Shard = list["Piece"]  # that are encoded by one thread and written at once
Documents = Callable[[int], Iterator[tuple[int, Text]]]  # from a number on, with their numbers


@dataclass(frozen=True)
class Plan:
    """Which documents a text has, and which part of each is to train on."""

    sizes: NDArray[np.int64]  # (n,) bytes of each document
    ends: NDArray[np.int64]  # (n,) where its training part ends, from 0 to its size; or DUPLICATE
    content: str  # SHA-256 of the text


class Piece(NamedTuple):
    """Text that is encoded as one, and where it belongs."""

    text: bytes
    validating: bool
    begins: bool  # the document, or the part of it that is held out
    ends: bool
    after: Place  # the place behind it


def build(
    source: TextSource, key: str, content: str | None, surveyed: Survey | None, directory: Path
) -> None:
    """Fill `directory`, which may hold what a killed process has left of the same text.

    `content` is the digest of the text and `surveyed` what is known of it, where it was read already. Raises
    ConfigError and OSError.
    """
    plan = _stored_plan(source, directory) or _make_plan(source, content, surveyed, directory)
    documents = _documents(source, plan, directory)
    tokenizer = _tokenizer(source, plan, documents, directory)
    with ExitStack() as stack:
        parts = Parts(directory, tokenizer, stack)
        shards = _shards(_pieces(plan, documents, parts.place))
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
    manifest = {
        "format": FORMAT,
        "key": key,
        **facts,
        "sizes": sizes,
        "blocks": blocks,
        "content": content_digest(directory, FILES),
        "fingerprint": fingerprint(facts, sizes, blocks),
    }
    (directory / MANIFEST).write_text(sealed(manifest))
    for name in (WRITTEN, TOKENIZER, PLAN, TEXT):
        (directory / name).unlink(missing_ok=True)


def _documents(source: TextSource, plan: Plan, directory: Path) -> Documents:
    if source.pinned:
        return partial(copied, directory / TEXT, plan.sizes)
    return partial(read_again, source, plan.sizes, plan.content)


def _make_plan(source: TextSource, content: str | None, surveyed: Survey | None, directory: Path) -> Plan:
    """Decide what is held out, and write that; read the text first where it was not."""
    if source.pinned:
        with (directory / TEXT).open("wb") as copy:
            found = survey(source, copy)
            copy.flush()
            os.fsync(copy.fileno())
    else:
        found = surveyed or survey(source)
    if content not in (None, found.digest):
        raise ConfigError(f"{source.label()} changed while it was read; try again")
    sizes, hashes = found.sizes, found.hashes
    given = len(sizes) if found.given is None else found.given
    first = np.concatenate([first_of_each(hashes[:given]), first_of_each(hashes[given:])])
    ends = np.where(first, sizes, DUPLICATE)
    plan = Plan(sizes, ends, found.digest)
    if found.given is not None:
        if source.held_out != HELD_OUT:
            raise ConfigError(
                f"data.held_out={source.held_out} holds out nothing of {source.label()}, which has a part to "
                f"validate on: leave it at {HELD_OUT}"
            )
        ends[given:] = np.where(first[given:], 0, DUPLICATE)
    else:
        share = held_out_share(source.held_out, int(sizes[first].sum()))
        ends[first] = hold_out(sizes[first], hashes[first], share)
        if ((ends > 0) & (ends < sizes)).any():
            for number, document in _documents(source, plan, directory)(0):
                ends[number] = character_start(document, int(ends[number]))
    stored = io.BytesIO()
    np.savez(stored, sizes=sizes, ends=ends, content=found.digest)
    _write(directory / PLAN, stored.getvalue())
    return plan


def _stored_plan(source: TextSource, directory: Path) -> Plan | None:
    """Return the plan that a killed process has left, None where there is none or it is damaged.

    None also where the text of a download is not all there.
    """
    try:
        with np.load(directory / PLAN) as stored:  # which checks a CRC of each array
            plan = Plan(stored["sizes"], stored["ends"], str(stored["content"]))
        whole = not source.pinned or (directory / TEXT).stat().st_size == plan.sizes.sum()
        return plan if whole else None
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None


def _tokenizer(source: TextSource, plan: Plan, documents: Documents, directory: Path) -> Tokenizer:
    """Return the tokenizer of `data.vocabulary`; a BPE is trained unless a killed process has done that."""
    vocabulary = source.vocabulary
    if vocabulary == "bytes":
        return Bytes()
    if is_tokenizer_file(vocabulary):
        return read_tokenizer(Path(str(vocabulary)))
    path, entries = directory / TOKENIZER, int(vocabulary)
    if not path.exists():
        size = int(np.maximum(plan.ends, 0).sum())
        training = (piece.text for piece in _pieces(plan, documents, (0, 0)) if not piece.validating)
        _write(path, train_bpe(sample_of(training, size), entries).encode())
    return read_tokenizer(path)


def _pieces(plan: Plan, documents: Documents, place: Place) -> Iterator[Piece]:
    """Yield all text from `place` on, without duplicates."""
    first, behind = place
    for number, document in documents(first):
        cut, size = int(plan.ends[number]), int(plan.sizes[number])
        if cut == DUPLICATE:
            continue
        behind = behind if number == first else 0
        for validating, begin, end in ((False, 0, cut), (True, cut, size)):
            start = max(begin, behind)
            for text in chunks(document, start, end):
                stop = start + len(text)
                after = (number, stop) if stop < size else (number + 1, 0)
                yield Piece(text, validating, start == begin, stop == end, after)
                start = stop


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


def _encoded(shards: Iterator[Shard], tokenizer: Tokenizer) -> Iterator[tuple[Shard, Encoded]]:
    """Yield the shards with their tokens, encoded in threads: the library leaves Python's lock."""
    count = _cores()
    pool = ThreadPoolExecutor(count)
    waiting: deque[tuple[Shard, Future[Encoded]]] = deque()
    try:
        for shard in shards:
            waiting.append((shard, pool.submit(tokenizer.encode, [piece.text for piece in shard])))
            if len(waiting) > count + count // 2 + 1:
                shard, future = waiting.popleft()
                yield shard, future.result()
        for shard, future in waiting:
            yield shard, future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Parts:
    """The files of tokens and of where validation documents begin and end, appended to shard by shard."""

    def __init__(self, directory: Path, tokenizer: Tokenizer, stack: ExitStack) -> None:
        """Open the files, in `stack`, behind the last shard that a killed process has written in full."""
        self.place: Place = (0, 0)  # where the next shard begins
        self._itemsize = tokenizer.dtype.itemsize
        self._separator = np.array([tokenizer.separator], dtype=tokenizer.dtype).tobytes()
        self._sizes = [0, 0, 0]  # bytes of each file
        self._log = stack.enter_context(_opened(directory / WRITTEN))
        self._files = [stack.enter_context(_opened(directory / name)) for name in PARTS]
        end = 0
        for line in self._log:
            if not self._resumed(line):
                break
            end += len(line)
        for file, size in zip((self._log, *self._files), (end, *self._sizes), strict=True):
            file.seek(size)
            file.truncate()

    def _resumed(self, line: bytes) -> bool:
        """Return whether what a line of the log says is in the files, and count it as written if so."""
        with suppress(ValueError, KeyError, TypeError, OverflowError):  # a line that is cut off or damaged
            entry = json.loads(line)
            place, sizes = entry["place"], entry["sizes"]
            added = [
                file.read(size - before)
                for file, size, before in zip(self._files, sizes, self._sizes, strict=True)
            ]
            if line.endswith(b"\n") and entry["sha256"] == _digest(place, sizes, added):
                self._sizes, self.place = sizes, (place[0], place[1])
                return True
        return False

    def append(self, pieces: Shard, tokens: NDArray[Any], counts: NDArray[np.int64]) -> None:
        """Write the tokens of a shard, of which each piece has as many as `counts` says."""
        added: list[list[bytes]] = [[], [], []]
        sizes = [*self._sizes]
        encoded = tokens.tobytes()
        begin = 0
        for piece, count in zip(pieces, counts.tolist(), strict=True):
            part = int(piece.validating)
            end = begin + count * self._itemsize
            if piece.begins and sizes[part]:
                added[part].append(self._separator)
                sizes[part] += self._itemsize
            if piece.begins and piece.validating:
                added[2].append(self._position(sizes[part]))
            added[part].append(encoded[begin:end])
            sizes[part] += end - begin
            if piece.ends and piece.validating:
                added[2].append(self._position(sizes[part]))
            begin = end
        joined = [b"".join(part) for part in added]
        for file, content in zip(self._files, joined, strict=True):
            file.write(content)
            file.flush()
        self._sizes = [size + len(part) for size, part in zip(self._sizes, joined, strict=True)]
        self.place = pieces[-1].after
        entry = {
            "place": self.place,
            "sizes": self._sizes,
            "sha256": _digest(self.place, self._sizes, joined),
        }
        self._log.write(json.dumps(entry).encode() + b"\n")
        self._log.flush()

    def sync(self) -> None:
        """Wait until the files have reached the disk."""
        for file in self._files:
            os.fsync(file.fileno())

    def _position(self, size: int) -> bytes:
        return np.array([size // self._itemsize], dtype="<i8").tobytes()


def _opened(path: Path) -> BinaryIO:
    path.touch()
    return path.open("r+b")


def _digest(place: Sequence[int], sizes: Sequence[int], added: list[bytes]) -> str:
    return hashlib.sha256(json.dumps([place, sizes]).encode() + b"".join(added)).hexdigest()


def _write(path: Path, content: bytes) -> None:
    """Write a file in one step, so that it is whole where it exists."""
    unfinished = path.with_name(f"{path.name}.new")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
