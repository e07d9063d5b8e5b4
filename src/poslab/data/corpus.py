"""Prepared text: the tokens of the training and of the validation part, mapped from files.

DIRECTORY/
    train.bin, validation.bin   tokens, little-endian, documents with a separator between
    documents.bin               (n, 2) int64: where each validation document begins and ends
    lengths.bin                 int64: the bytes that each token of the vocabulary stands for
    spellings.bin               these bytes, one token after the other
    tokenizer.json              what cut the text into tokens that are no bytes
    manifest.json               how to read them, checksums and the fingerprint; sealed, written last
    verified.json               as which files they were verified, on which machines
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poslab.config.schema import HELD_OUT, MULTIPLES, ConfigError
from poslab.data.verification import verify
from poslab.record.seal import DamagedError, unsealed

FORMAT = 3  # in every cache key: raise it when prepared data would look different

FILES = ("train.bin", "validation.bin", "documents.bin", "lengths.bin", "spellings.bin")
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"


@dataclass(frozen=True, eq=False)
class Corpus:
    """Text as tokens."""

    name: str  # of the source, for reports
    directory: Path
    fingerprint: str  # over all tokens and how to read them: the same for one text everywhere
    content: str  # over the files only: the fingerprint in the records of earlier versions
    vocabulary: int  # different tokens, the separator among them
    separator: int  # the token between documents
    documents: int  # training and validation together
    train: NDArray[Any]  # tokens, 1-d
    validation: NDArray[Any]  # tokens, 1-d
    validation_documents: NDArray[np.int64]  # (n, 2) begin and end in `validation`, separators outside
    token_bytes: NDArray[np.int64]  # (vocabulary,) the bytes of text that each token stands for

    def describe(self) -> dict[str, Any]:
        """Return the facts about the data in the record of a run."""
        return {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "content": self.content,
            "vocabulary": self.vocabulary,
            "train_tokens": len(self.train),
            "validation_tokens": len(self.validation),
            "documents": self.documents,
        }

    def decode(self, tokens: NDArray[Any]) -> bytes:
        """Return the text of 1-d tokens; a separator is a NUL byte."""
        spellings = (self.directory / "spellings.bin").read_bytes()
        ends = np.cumsum(self.token_bytes)
        starts = ends - self.token_bytes
        return b"".join(spellings[starts[token] : ends[token]] for token in tokens)

    def tokenizer(self) -> bytes:
        """Return the tokenizer.json that cut the text into tokens that are no bytes. Raise OSError."""
        return (self.directory / TOKENIZER).read_bytes()

    def for_tuning(self) -> "Corpus":
        """Return the training text only, its last tenth held out: tuning never sees the validation text."""
        cut = len(self.train) - len(self.train) // 10
        return replace(
            self,
            fingerprint=hashlib.sha256(f"{self.fingerprint} tuning".encode()).hexdigest(),
            content=hashlib.sha256(f"{self.content} tuning".encode()).hexdigest(),
            train=self.train[:cut],
            validation=self.train[cut:],
            validation_documents=np.array([[0, len(self.train) - cut]], dtype=np.int64),
        )


def check_lengths(
    corpus: Corpus, context_length: int, longest: int, documents: str = "single", held_out: Any = HELD_OUT
) -> None:
    """Raise ConfigError where the text is too short to train, to validate or to extrapolate on.

    `context_length` and `longest`, a multiple of it, are in tokens; `documents` and `held_out` are settings.
    """
    train, validation = len(corpus.train), len(corpus.validation)
    begins, ends = corpus.validation_documents.T
    several = len(begins) > 1 and documents == "single"
    document = int((ends - begins).max(initial=0)) if several else validation
    multiple = longest // context_length
    window = f"one window of {context_length + 1:,}"
    if train <= context_length:
        short = f"training part ({train:,}) is shorter than {window}"
    elif validation <= context_length:
        short = f"validation part ({validation:,}) is shorter than {window}"
    elif document <= 2 * longest:
        part = "part's longest document" if several else "part"
        needed = f"{2 * longest + 1:,} that evaluation at {multiple:,} x {context_length:,} needs"
        short = f"validation {part} ({document:,}) is shorter than the {needed}"
    else:
        return
    remedies = ["a longer text"]
    if held_out != HELD_OUT and train > context_length:
        remedies.append("a larger data.held_out")
    if several and train > context_length and validation > 2 * longest:
        remedies.append("evaluate.documents=joined")
    if train > context_length < validation:
        reachable = [multiple for multiple in MULTIPLES if 2 * multiple * context_length < document]
        remedies += [f"evaluate.longest={multiple}" for multiple in reachable[-1:]]
    fitting = min(train - 1, validation - 1, (document - 1) // (2 * multiple))
    if fitting > 0:
        remedies.append(f"context_length={1 << (fitting.bit_length() - 1)}")  # a power of two
    advice = " or ".join(filter(None, [", ".join(remedies[:-1]), remedies[-1]]))
    raise ConfigError(f"{corpus.name} has {train + validation:,} tokens; its {short}; use {advice}")


def load(directory: Path, name: str) -> Corpus | None:
    """Return the corpus in `directory`, None where there is none.

    Raises DamagedError, which names the file, where it is not as it was written.
    """
    if not directory.is_dir():
        return None
    manifest = _read_manifest(directory)
    verify(directory, manifest["blocks"])
    try:
        dtype = np.dtype(manifest["dtype"])
        return Corpus(
            name=name,
            directory=directory,
            fingerprint=manifest["fingerprint"],
            content=manifest["content"],
            vocabulary=manifest["vocabulary"],
            separator=manifest["separator"],
            documents=manifest["documents"],
            train=_mapped(directory / "train.bin", dtype),
            validation=_mapped(directory / "validation.bin", dtype),
            validation_documents=np.fromfile(directory / "documents.bin", dtype="<i8").reshape(-1, 2),
            token_bytes=np.fromfile(directory / "lengths.bin", dtype="<i8"),
        )
    except OSError as error:
        raise DamagedError(f"{directory} cannot be read: {error.strerror}") from None


def _read_manifest(directory: Path) -> Mapping[str, Any]:
    """Return the manifest, checked except for the files. Raises DamagedError."""
    path = directory / MANIFEST
    try:
        content = path.read_bytes()
    except OSError:
        raise DamagedError(f"{path} is missing") from None
    manifest = unsealed(content, path)
    if (number := manifest.get("format")) != FORMAT:
        raise DamagedError(f"{path} has format {number}, which this version does not read")
    if not str(manifest.get("key")).startswith(directory.name):
        raise DamagedError(f"{path} is of another text")
    return manifest


def _mapped(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r")
