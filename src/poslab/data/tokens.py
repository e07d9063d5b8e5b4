"""From text to tokens and back: bytes as they are, or a byte-level BPE trained on the text itself.

Both are lossless, and both know how many bytes each token stands for, so that bits per byte are exact. A
separator stands between documents; it counts as the one byte that it would be in a file.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from poslab.config.schema import ConfigError

CHUNK = 2**18  # bytes that are encoded at once: an Encoding takes some hundred times its text's memory
BATCH = 2**22  # bytes that the cores share
SAMPLE = 2**28  # bytes that a BPE is trained on at most

SEPARATOR = b"\0"  # no text contains it: sources refuse or drop NUL bytes


class Tokenizer(Protocol):
    @property
    def spellings(self) -> Sequence[bytes]:
        """The bytes that each token stands for."""

    @property
    def separator(self) -> int: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def encode(self, documents: Iterable[memoryview]) -> Iterator[NDArray[Any]]:
        """Yield the tokens of each document, 1-d, without separators."""


class Bytes:
    """A token a byte."""

    spellings: Sequence[bytes] = tuple(bytes([value]) for value in range(256))
    separator = 0
    dtype = np.dtype("u1")

    def encode(self, documents: Iterable[memoryview]) -> Iterator[NDArray[Any]]:
        return (np.frombuffer(document, dtype=np.uint8) for document in documents)


class Bpe:
    """A byte-level BPE of `entries` tokens, the separator among them, trained on `documents`.

    The tokenizer knows no special tokens, so text that spells one stays text. Raises ConfigError where the
    text has too few different pairs for so many entries.
    """

    def __init__(self, documents: Sequence[memoryview], entries: int) -> None:
        # Set to anything, this variable stops the library's warning when a data loader forks later.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        self._tokenizer = Tokenizer(models.BPE())
        self._tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        trainer = trainers.BpeTrainer(vocab_size=entries - 1, initial_alphabet=alphabet, show_progress=False)
        self._tokenizer.train_from_iterator(_sample(documents), trainer)
        learned = self._tokenizer.get_vocab()
        if len(learned) != entries - 1:
            most = len(learned) + 1
            raise ConfigError(
                f"data.vocabulary={entries} is more than this text gives; use at most {most} or bytes"
            )
        byte_of = byte_of_letter()
        ordered = sorted(learned, key=learned.__getitem__)
        self.spellings = (*(bytes(byte_of[letter] for letter in token) for token in ordered), SEPARATOR)
        self.separator = entries - 1
        self.dtype = np.dtype("<u2" if entries <= 2**16 else "<u4")

    def encode(self, documents: Iterable[memoryview]) -> Iterator[NDArray[Any]]:
        for batch in batches(documents):
            pieces = [chunks(document) for document in batch]
            encodings = iter(self._tokenizer.encode_batch_fast(list(chain.from_iterable(pieces))))
            for part in pieces:
                yield np.concatenate([np.array(next(encodings).ids, dtype=self.dtype) for _ in part])


def chunks(document: memoryview) -> list[str]:
    """Return pieces of at most CHUNK bytes, cut after a line where there is one, else between characters."""
    pieces = []
    start = 0
    while start < len(document):
        end = min(start + CHUNK, len(document))
        if end < len(document):
            newline = bytes(document[start:end]).rfind(b"\n")
            end = start + newline + 1 if newline >= 0 else character_start(document, end)
        pieces.append(str(document[start:end], "utf-8"))
        start = end
    return pieces


def character_start(text: memoryview, offset: int) -> int:
    """Return the last offset at or before `offset` at which a UTF-8 character begins."""
    while 0 < offset < len(text) and text[offset] & 0xC0 == 0x80:
        offset -= 1
    return offset


def batches(documents: Iterable[memoryview]) -> Iterator[list[memoryview]]:
    """Yield the documents in lists of at least BATCH bytes, but for the last."""
    batch: list[memoryview] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document)
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _sample(documents: Sequence[memoryview]) -> Iterator[str]:
    """Yield all of the text, or evenly spaced chunks of it where it is longer than SAMPLE."""
    every = -(-sum(map(len, documents)) // SAMPLE)
    all_chunks = chain.from_iterable(map(chunks, documents))
    return (chunk for index, chunk in enumerate(all_chunks) if index % every == 0)


def byte_of_letter() -> dict[str, int]:
    """Return the byte of each printable letter by which byte-level BPE writes bytes: GPT-2's table, inverted.

    https://github.com/openai/gpt-2/blob/master/src/encoder.py
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(hidden)}
