"""Tokenizers read from a tokenizer.json, with the bytes that each token stands for.

The file has to be a byte-level BPE (GPT-2, Llama 3, Qwen), or SentencePiece's BPE of characters with byte
fallback (Llama 2, Mistral, Gemma). With any other tokenizer, bits per byte would be wrong.
"""

import hashlib
import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from poslab.config.schema import ConfigError
from poslab.data.tokens import Bpe, byte_of_letter

SPACE = "\u2581"  # SentencePiece's symbol for a space
BYTE_TOKENS = {f"<0x{value:02X}>": bytes([value]) for value in range(256)}


def read_tokenizer(path: Path) -> Bpe:
    """Return the tokenizer with an added token, the separator. Text that spells a special token stays text.

    The space that a tokenizer puts before a text is left out, since the text does not contain it.
    Raises ConfigError if the file is not such a tokenizer; its `encode` does so if the tokens do not spell
    the text.
    """
    where, content = f"data.vocabulary={path}", _content(path)
    spellings = _spellings(content, where)
    return Bpe(_without_prefix(content), spellings, where)


def digest(path: Path) -> str:
    """Return the SHA-256 of a tokenizer's file, which decides the tokens of a text. Raises ConfigError."""
    return hashlib.sha256(_content(path)).hexdigest()


def entries(path: Path) -> int:
    """Return the number of tokens in the file, plus one for the separator. Raises ConfigError."""
    return len(_spellings(_content(path), f"data.vocabulary={path}")) + 1


def _content(path: Path) -> bytes:
    try:
        return Path(os.path.expanduser(path)).read_bytes()
    except OSError as error:
        raise ConfigError(f"data.vocabulary={path} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=2)
def _spellings(content: bytes, where: str) -> tuple[bytes, ...]:
    """Return the bytes of each token, by its number; empty for numbers that are not used."""
    try:
        read = json.loads(content)
        vocabulary: dict[str, int] = read["model"]["vocab"]
        added = {int(token["id"]): str(token["content"]) for token in read.get("added_tokens") or ()}
        numbers = {number: token for token, number in vocabulary.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConfigError(f"{where} is not a tokenizer.json with a vocabulary") from None
    spelled = {number: text.encode() for number, text in added.items()}
    in_characters = bool(read["model"].get("byte_fallback"))
    for number, token in numbers.items():
        if in_characters and token in BYTE_TOKENS:
            spelled[number] = BYTE_TOKENS[token]
        elif in_characters:  # added tokens too: some of Gemma's are runs of spaces
            spelled[number] = token.replace(SPACE, " ").encode()
        elif number not in added:
            spelled[number] = _bytes_of(token, where)
    return tuple(spelled.get(number, b"") for number in range(max(spelled, default=-1) + 1))


def _bytes_of(token: str, where: str) -> bytes:
    byte_of = byte_of_letter()
    if not set(token) <= byte_of.keys():
        raise ConfigError(
            f"{where} is neither a byte-level BPE nor one with byte fallback (its token {token[:20]!r}): "
            "choose a tokenizer like GPT-2's or Llama's, data.vocabulary=NUMBER or bytes"
        )
    return bytes(byte_of[letter] for letter in token)


def _without_prefix(content: bytes) -> str:
    """Return the tokenizer.json with everything switched off that puts a space before a text."""
    read = json.loads(content)
    for step in (*_steps(read.get("normalizer")), *_steps(read.get("pre_tokenizer"))):
        if step.get("type") == "Prepend":
            step["prepend"] = ""
        if "add_prefix_space" in step:
            step["add_prefix_space"] = False
        if "prepend_scheme" in step:
            step["prepend_scheme"] = "never"
    return json.dumps(read)


def _steps(part: Any) -> list[dict[str, Any]]:
    if part is None:
        return []
    return part.get("normalizers") or part.get("pretokenizers") or [part]
