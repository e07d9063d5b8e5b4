"""Prepared text: the tokens of the training and validation parts, memory-mapped from files.

DIRECTORY/
    train.bin, validation.bin   tokens, little-endian, with a separator between documents
    documents.bin               (n, 2) int64: where each validation document begins and ends
    lengths.bin                 int64: the bytes that each token of the vocabulary stands for
    spellings.bin               these bytes, concatenated in the order of the tokens
    tokenizer.json              the tokenizer, unless tokens are bytes
    manifest.json               how to read these files, checksums, the fingerprint; sealed, written last
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poslab.config.schema import HELD_OUT, MULTIPLES, ConfigError
from poslab.data.verification import verify
from poslab.record.seal import DamagedError, read_sealed

FORMAT = 3  # part of every cache key: increase it when prepared data would look different

FILES = ("train.bin", "validation.bin", "documents.bin", "lengths.bin", "spellings.bin")
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"


@dataclass(frozen=True, eq=False)
class Corpus:
    """Text as tokens."""

    name: str  # the source's name in reports
    directory: Path
    fingerprint: str  # hash of all tokens and how to read them: the same for one text on every machine
    vocabulary: int  # number of different tokens, including the separator
    separator: int  # the token between documents
    documents: int  # training and validation together
    train: NDArray[Any]  # tokens, 1-d
    validation: NDArray[Any]  # tokens, 1-d
    validation_documents: NDArray[np.int64]  # (n, 2) begin and end in `validation`, without separators
    token_bytes: NDArray[np.int64]  # (vocabulary,) the bytes of text that each token stands for

    def describe(self) -> dict[str, Any]:
        """Return the facts about the data that go into a run's record."""
        return {
            "name": self.name,
            "fingerprint": self.fingerprint,
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
        """Return the content of tokenizer.json. Raises OSError; there is no such file if tokens are bytes."""
        return (self.directory / TOKENIZER).read_bytes()

    def for_tuning(self) -> "Corpus":
        """Return the training text with its last tenth held out: tuning never sees the validation text."""
        cut = len(self.train) - len(self.train) // 10
        return replace(
            self,
            fingerprint=hashlib.sha256(f"{self.fingerprint} tuning".encode()).hexdigest(),
            train=self.train[:cut],
            validation=self.train[cut:],
            validation_documents=np.array([[0, len(self.train) - cut]], dtype=np.int64),
        )


def check_lengths(
    corpus: Corpus, context_length: int, longest: int, documents: str = "single", held_out: Any = HELD_OUT
) -> None:
    """Raise ConfigError if the text is too short for training, validation or extrapolation.

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
    is_sized = validation and not several and not isinstance(held_out, str)
    size = -(-(2 * longest + 1) * (train + validation) // max(1, validation))
    remedies = [f"a longer text (about {size:,} tokens)" if is_sized else "a longer text"]
    if held_out != HELD_OUT and train > context_length:
        remedies.append("a larger data.held_out")
    if several and train > context_length and validation > 2 * longest:
        remedies.append("evaluate.documents=joined")
    if train > context_length < validation:
        reachable = [multiple for multiple in MULTIPLES if 2 * multiple * context_length < document]
        remedies += [f"evaluate.longest={multiple}" for multiple in reachable[-1:]]
    for times, setting in ((multiple, ""), (1, " evaluate.longest=1")):
        fitting = min(train - 1, validation - 1, (document - 1) // (2 * times))
        if fitting >= 16:  # tokens: shorter windows say little about positions
            remedies.append(f"context_length={1 << (fitting.bit_length() - 1)}{setting}")  # a power of two
            break
    advice = " or ".join(filter(None, [", ".join(remedies[:-1]), remedies[-1]]))
    raise ConfigError(f"{corpus.name} has {train + validation:,} tokens; its {short}; use {advice}")


def load(directory: Path, name: str) -> Corpus | None:
    """Return the corpus in `directory`; None if there is none.

    Raises DamagedError, which names the file, if a file is not as it was written.
    """
    if not directory.is_dir():
        return None
    try:
        manifest = read_sealed(directory / MANIFEST)
    except OSError:
        raise DamagedError(f"{directory / MANIFEST} is missing") from None
    verify(directory, manifest["blocks"])
    dtype = np.dtype(manifest["dtype"])
    return Corpus(
        name=name,
        directory=directory,
        fingerprint=manifest["fingerprint"],
        vocabulary=manifest["vocabulary"],
        separator=manifest["separator"],
        documents=manifest["documents"],
        train=_mapped(directory / "train.bin", dtype),
        validation=_mapped(directory / "validation.bin", dtype),
        validation_documents=np.fromfile(directory / "documents.bin", dtype="<i8").reshape(-1, 2),
        token_bytes=np.fromfile(directory / "lengths.bin", dtype="<i8"),
    )


def _mapped(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r")
