"""The tokenizer of a file tokenizer.json, where it is a byte-level BPE such as GPT-2's or Llama 3's.

No other kind knows which bytes each of its tokens stands for, without which bits per byte would be wrong.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from poslab.config.schema import ConfigError
from poslab.data.tokens import SEPARATOR, Encoder, byte_of_letter, token_dtype


class TokenizerFile:
    """Its tokens, and one more that separates documents. Text that spells a special token stays text.

    Raises ConfigError where the file is no such tokenizer, and when it encodes where it does not give a text
    back.
    """

    def __init__(self, path: Path) -> None:
        where = f"data.vocabulary={path}"
        content = _content(path)
        self.spellings: Sequence[bytes] = (*_spellings(content, where), SEPARATOR)
        self.separator = len(self.spellings) - 1
        self.dtype = token_dtype(len(self.spellings))
        self.encoder = Encoder(content.decode(), self.spellings, self.dtype, checked=where)


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
