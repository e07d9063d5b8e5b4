"""The tokenizer of a file tokenizer.json, where it is a byte-level BPE such as GPT-2's or Llama 3's.

No other kind knows which bytes each of its tokens stands for, without which bits per byte would be wrong.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poslab.config.schema import ConfigError
from poslab.data.tokens import SEPARATOR, batches, byte_of_letter, chunks


class TokenizerFile:
    """Its tokens, and one more that separates documents. Text that spells a special token stays text.

    Raises ConfigError where the file is no such tokenizer, and later where it does not give a text back.
    """

    def __init__(self, path: Path) -> None:
        # Set to anything, this variable stops the library's warning when a data loader forks later.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
        from tokenizers import Tokenizer

        self._where = f"data.vocabulary={path}"
        content = _content(path)
        self.spellings: Sequence[bytes] = (*_spellings(content, self._where), SEPARATOR)
        try:
            self._tokenizer = Tokenizer.from_str(content.decode())
        except Exception as error:  # the library raises Exception itself
            raise ConfigError(f"{self._where} is not read as a tokenizer: {str(error)[:200]}") from None
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.separator = len(self.spellings) - 1
        self.dtype = np.dtype("<u2" if len(self.spellings) <= 2**16 else "<u4")

    def encode(self, documents: Iterable[memoryview]) -> Iterator[NDArray[Any]]:
        for batch in batches(documents):
            pieces = [chunks(document) for document in batch]
            texts = list(chain.from_iterable(pieces))
            encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            for text, encoding in zip(texts, encodings, strict=True):
                if b"".join(map(self.spellings.__getitem__, encoding.ids)) != text.encode():
                    raise ConfigError(
                        f"{self._where} changes text (it normalises it, or adds spaces): take another"
                    )
            remaining = iter(encodings)
            for part in pieces:
                yield np.concatenate([np.array(next(remaining).ids, dtype=self.dtype) for _ in part])


def digest(path: Path) -> str:
    """Return the SHA-256 of a tokenizer's file, which decides the tokens of a text. Raises ConfigError."""
    return hashlib.sha256(_content(path)).hexdigest()


def entries(path: Path) -> int:
    """Return how many tokens it has, the separator among them. Raises ConfigError."""
    return len(_spellings(_content(path), f"data.vocabulary={path}")) + 1


def _content(path: Path) -> bytes:
    try:
        return Path(os.path.expanduser(path)).read_bytes()
    except OSError as error:
        raise ConfigError(f"data.vocabulary={path} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=2)
def _spellings(content: bytes, where: str) -> tuple[bytes, ...]:
    """Return the bytes of each token, in the order of their numbers; none where a number is not used."""
    try:
        read = json.loads(content)
        vocabulary: dict[str, int] = read["model"]["vocab"]
        added = {int(token["id"]): str(token["content"]) for token in read.get("added_tokens") or ()}
        numbers = {number: token for token, number in vocabulary.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConfigError(f"{where} is no tokenizer.json with a vocabulary") from None
    byte_of = byte_of_letter()
    spelled = {number: text.encode() for number, text in added.items()}
    for number, token in numbers.items():
        if number not in added:
            if not set(token) <= byte_of.keys():
                raise ConfigError(
                    f"{where} is no byte-level BPE (its token {token[:20]!r} is not spelled in bytes): "
                    "choose a tokenizer like GPT-2's, data.vocabulary=NUMBER or bytes"
                )
            spelled[number] = bytes(byte_of[letter] for letter in token)
    return tuple(spelled.get(number, b"") for number in range(max(spelled, default=-1) + 1))
