"""From text to tokens and back: bytes as they are, or a BPE with the bytes that each token stands for.

Both are lossless, and both know the number of bytes in each token, so bits per byte are exact. A separator
is put between documents; it counts as one byte, as it would in a file.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poslab.config.schema import ConfigError

CHUNK = 2**18  # the most bytes encoded as one text; the tokens of longer documents depend on it
SAMPLE = 2**28  # the most bytes that a BPE is trained on

SEPARATOR = b"\0"  # no text contains it: sources refuse or drop NUL bytes

Encoded = tuple[NDArray[Any], NDArray[np.int64]]  # tokens of n pieces, 1-d; the number in each piece, (n,)


class FileText:
    """Text of `size` bytes in a file, from `begin` on. Parts are read when they are used."""

    def __init__(self, path: Path, begin: int, size: int) -> None:
        self._path = path
        self._begin = begin
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice, /) -> bytes:
        begin, end, _ = part.indices(self._size)
        try:
            with self._path.open("rb") as file:
                file.seek(self._begin + begin)
                return file.read(max(end - begin, 0))
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be read: {error.strerror}") from None


Text = bytes | FileText  # UTF-8, in memory or in a file


class Bytes:
    """The tokenizer with one token per byte."""

    spellings: Sequence[bytes] = tuple(bytes([value]) for value in range(256))
    separator = 0
    dtype = np.dtype("u1")

    def encode(self, pieces: Sequence[bytes]) -> Encoded:
        """Return the tokens of all pieces of text, and the number in each piece."""
        sizes = np.array([len(piece) for piece in pieces], dtype=np.int64)
        return np.frombuffer(b"".join(pieces), dtype=self.dtype), sizes


class Bpe:
    """A BPE from the content of its tokenizer.json, with one added token that separates documents.

    `spellings` are the bytes of the tokens, and `name` is used in messages. Text that spells a special token
    is encoded as text. Raises ConfigError if the library cannot read the content.
    """

    def __init__(self, content: str, spellings: Iterable[bytes], name: str) -> None:
        # Any value of this variable stops the library's warning when a data loader forks later.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
        from tokenizers import Tokenizer as Library

        self.spellings: Sequence[bytes] = (*spellings, SEPARATOR)
        self.separator = len(self.spellings) - 1
        self.dtype = np.dtype("<u2" if len(self.spellings) <= 2**16 else "<u4")
        self._name = name
        try:
            self._tokenizer = Library.from_str(content)
        except Exception as error:  # the library raises plain Exception
            raise ConfigError(f"{name} cannot be read as a tokenizer: {str(error)[:200]}") from None
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, pieces: Sequence[bytes]) -> Encoded:
        """Return the tokens of all pieces of text, and the number in each piece.

        Raises ConfigError if the tokens of a piece do not spell its text.
        """
        texts = [str(piece, "utf-8") for piece in pieces]
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        tokens: list[NDArray[Any]] = []
        for piece, encoding in zip(pieces, encodings, strict=True):
            numbers = encoding.ids
            if b"".join(map(self.spellings.__getitem__, numbers)) != piece:
                raise ConfigError(
                    f"{self._name} changes text (it normalises it, or adds spaces): choose another"
                )
            tokens.append(np.array(numbers, dtype=self.dtype))
        return np.concatenate(tokens), np.array([len(part) for part in tokens], dtype=np.int64)


Tokenizer = Bytes | Bpe


def train_bpe(sample: Iterable[str], entries: int) -> str:
    """Return the tokenizer.json of a byte-level BPE of `entries` - 1 tokens, trained on `sample`.

    It has no special tokens. Raises ConfigError if the text has too few pairs for that many entries.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")  # as above
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, pre_tokenizers, trainers

    tokenizer = Library(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=entries - 1, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(sample, trainer)
    learned = tokenizer.get_vocab_size()
    if learned != entries - 1:
        raise ConfigError(
            f"data.vocabulary={entries} is more than this text allows: use at most {learned + 1} or bytes"
        )
    return str(tokenizer.to_str())


def tokenizer_of_bytes() -> str:
    """Return the tokenizer.json of a byte-level BPE in which each byte is a token."""
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, pre_tokenizers

    tokenizer = Library(models.BPE(byte_of_letter(), []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return str(tokenizer.to_str())


def sample_of(pieces: Iterable[bytes], size: int) -> Iterator[str]:
    """Yield the `pieces` of a text of `size` bytes; evenly spaced ones if it is longer than SAMPLE."""
    every = -(-size // SAMPLE)
    return (str(piece, "utf-8") for number, piece in enumerate(pieces) if number % every == 0)


def lengths(spellings: Sequence[bytes]) -> NDArray[np.int64]:
    """Return (vocabulary,) the number of bytes in each token."""
    return np.array([len(spelling) for spelling in spellings], dtype="<i8")


def chunks(text: Text, begin: int, end: int) -> Iterator[bytes]:
    """Yield text[begin:end] in pieces of at most CHUNK bytes.

    A piece ends after its last complete line if it has one, otherwise between two characters.
    """
    while begin < end:
        piece = text[begin : min(begin + CHUNK, end)]
        if begin + len(piece) < end:
            newline = piece.rfind(b"\n")
            stop = begin + newline + 1 if newline >= 0 else character_start(text, begin + len(piece))
            piece = piece[: stop - begin]
        yield piece
        begin += len(piece)


def character_start(text: Text, offset: int) -> int:
    """Return the last offset at or before `offset` at which a UTF-8 character begins."""
    while 0 < offset < len(text) and text[offset : offset + 1][0] & 0xC0 == 0x80:
        offset -= 1
    return offset


@cache
def byte_of_letter() -> dict[str, int]:
    """Return the byte for each letter with which a byte-level BPE writes bytes: GPT-2's table, inverted.

    https://github.com/openai/gpt-2/blob/master/src/encoder.py
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(hidden)}
