"""Prepared text: the tokens of the training and of the validation part, mapped from files.

DIRECTORY/
    train.bin, validation.bin   tokens, little-endian, documents with a separator between
    documents.bin               (n, 2) int64: where each validation document begins and ends
    lengths.bin                 int64: the bytes that each token of the vocabulary stands for
    spellings.bin               these bytes, one token after the other
    manifest.json               sizes and the fingerprint; written last
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORMAT = 2  # in every cache key: raise it when prepared data would look different

FILES = ("train.bin", "validation.bin", "documents.bin", "lengths.bin", "spellings.bin")
MANIFEST = "manifest.json"
# bytes; smaller corpora are hashed whenever they are opened, which takes a fraction of a second
REHASH = 2**28


@dataclass(frozen=True, eq=False)
class Corpus:
    """Text as tokens. A pickled copy maps the same files, so worker processes share the memory."""

    name: str  # of the source, for reports
    directory: Path
    fingerprint: str  # sha256 over all tokens and the vocabulary: the same text has the same one everywhere
    vocabulary: int  # different tokens, the separator among them
    separator: int  # the token between documents
    documents: int  # training and validation together
    train: NDArray[Any]  # tokens, 1-d
    validation: NDArray[Any]  # tokens, 1-d
    validation_documents: NDArray[np.int64]  # (n, 2) begin and end in `validation`, separators outside
    token_bytes: NDArray[np.int64]  # (vocabulary,) the bytes of text that each token stands for
    part: str = "comparison"

    def describe(self) -> dict[str, Any]:
        """The facts about the data in the record of a run."""
        return {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "vocabulary": self.vocabulary,
            "train_tokens": len(self.train),
            "validation_tokens": len(self.validation),
            "documents": self.documents,
        }

    def decode(self, tokens: NDArray[Any]) -> bytes:
        """The text of 1-d tokens; a separator is a NUL byte."""
        spellings = (self.directory / "spellings.bin").read_bytes()
        ends = np.cumsum(self.token_bytes)
        starts = ends - self.token_bytes
        return b"".join(spellings[starts[token] : ends[token]] for token in tokens)

    def for_tuning(self) -> "Corpus":
        """The training text alone, its last tenth held out, so that tuning never sees the validation text."""
        cut = len(self.train) - len(self.train) // 10
        return replace(
            self,
            fingerprint=hashlib.sha256(f"{self.fingerprint} tuning".encode()).hexdigest(),
            train=self.train[:cut],
            validation=self.train[cut:],
            validation_documents=np.array([[0, len(self.train) - cut]], dtype=np.int64),
            part="tuning",
        )

    def __reduce__(self) -> tuple[Callable[..., "Corpus | None"], tuple[Path, str, str]]:
        return _reload, (self.directory, self.name, self.part)


def _reload(directory: Path, name: str, part: str) -> "Corpus | None":
    corpus = load(directory, name)
    return corpus.for_tuning() if corpus is not None and part == "tuning" else corpus


def write_manifest(
    directory: Path, dtype: np.dtype[Any], vocabulary: int, separator: int, documents: int
) -> None:
    """Seal the files of a prepared directory: their sizes, and the fingerprint over their content."""
    manifest = {
        "format": FORMAT,
        "dtype": dtype.str,
        "vocabulary": vocabulary,
        "separator": separator,
        "documents": documents,
        "sizes": {name: (directory / name).stat().st_size for name in FILES},
    }
    manifest["fingerprint"] = _fingerprint(directory)
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=1))


def load(directory: Path, name: str) -> Corpus | None:
    """The corpus in `directory`, or None where it is missing, unfinished or damaged."""
    try:
        manifest = json.loads((directory / MANIFEST).read_text())
        sizes = {file: (directory / file).stat().st_size for file in FILES}
        sound = manifest["format"] == FORMAT and manifest["sizes"] == sizes
        if sound and sum(sizes.values()) <= REHASH:
            sound = manifest["fingerprint"] == _fingerprint(directory)
        if not sound:
            return None
        return Corpus(
            name=name,
            directory=directory,
            fingerprint=manifest["fingerprint"],
            vocabulary=manifest["vocabulary"],
            separator=manifest["separator"],
            documents=manifest["documents"],
            train=_mapped(directory / "train.bin", np.dtype(manifest["dtype"])),
            validation=_mapped(directory / "validation.bin", np.dtype(manifest["dtype"])),
            validation_documents=np.fromfile(directory / "documents.bin", dtype="<i8").reshape(-1, 2),
            token_bytes=np.fromfile(directory / "lengths.bin", dtype="<i8"),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _mapped(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r")


def _fingerprint(directory: Path) -> str:
    digest = hashlib.sha256()
    for name in FILES:
        digest.update(f"{name} {(directory / name).stat().st_size}\n".encode())
        with (directory / name).open("rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    return digest.hexdigest()
