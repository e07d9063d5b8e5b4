"""Data sets from the Hugging Face hub, streamed through `datasets` once. Prepared data do not need the hub.

The text must be pinned: by a commit hash, or by its own sha256 if the repository has only a branch, which can
move. NUL bytes, which some crawled rows contain, are dropped, since NUL separates documents.
"""

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from poslab.config.schema import ConfigError
from poslab.data.sources import TextSource

OFFLINE_CHOICES = "data=stdlib, data=text data.path=FILE and data=copy need no hub"
COMMIT = re.compile(r"[0-9a-f]{40}")


class Source(TextSource):
    source: Literal["hub"] = Field(description="the module that reads the text")
    path: str = Field(pattern=r"^[\w.-]+/[\w.-]+$", description="OWNER/NAME on the hub")
    name: str | None = Field(min_length=1, description="the configuration of the data set")
    files: str | None = Field(
        min_length=1, description="a pattern for files in the repository, instead of `name`"
    )
    split: str = Field(min_length=1, description="the split of the data set; several are joined with +")
    revision: str = Field(min_length=1, description="a commit hash; a branch only together with sha256")
    sha256: str | None = Field(pattern=r"^[0-9a-f]{64}$", description="hash of all documents, concatenated")
    column: str = Field(min_length=1, description="the column that holds the text")
    documents: int | None = Field(ge=1, description="how many documents to take, from the first; null: all")
    document_start: str | None = Field(
        description="if rows are lines: a pattern that matches the first line of a document"
    )

    pinned: ClassVar[bool] = True

    @field_validator("document_start")
    @classmethod
    def _is_a_pattern(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"{value!r} is not a regular expression: {error}") from None
        return value

    @model_validator(mode="after")
    def _text_is_pinned(self) -> Self:
        if self.sha256 is None and not COMMIT.fullmatch(self.revision):
            raise ValueError(
                f"revision={self.revision} can move: set a commit hash of 40 hex digits, or sha256"
            )
        if self.name is not None and self.files is not None:
            raise ValueError("files replaces name: set one of them to null")
        return self

    def label(self) -> str:
        part = "" if self.name is None else f" {self.name}"
        limit = "" if self.documents is None else f", first {self.documents:,} documents"
        return f"{self.path}{part} ({self.split}{limit})"

    def read(self) -> Iterator[bytes]:
        """Yield each row as a document or, with `document_start`, each run of rows. Raises ConfigError."""
        digest = hashlib.sha256()
        for count, document in enumerate(self._joined_rows(), start=1):
            digest.update(document)
            yield document
            if count == self.documents:
                break
        if self.sha256 is not None and digest.hexdigest() != self.sha256:
            raise ConfigError(
                f"{self.path} at {self.revision} does not match data.sha256 (its SHA-256 is "
                f"{digest.hexdigest()}): the copy on the hub has changed"
            )

    def _joined_rows(self) -> Iterator[bytes]:
        if self.document_start is None:
            yield from (row for row in self._rows() if row)
            return
        start = re.compile(self.document_start.encode())
        lines: list[bytes] = []
        matched = False
        for row in self._rows():
            if start.search(row):
                matched = True
                if lines:
                    yield b"".join(lines)
                lines = []
            if row:
                lines.append(row)
        if not matched:
            raise ConfigError(f"data.document_start={self.document_start!r} matches no row of {self.path}")
        if lines:
            yield b"".join(lines)

    def _rows(self) -> Iterator[bytes]:
        rows = _load(self)
        try:
            for batch in rows.iter(batch_size=256):
                if self.column not in batch:
                    raise ConfigError(
                        f"data.column={self.column} is not in {self.path}; it has {', '.join(batch)}"
                    )
                for text in batch[self.column]:
                    if not isinstance(text, str):
                        kind = type(text).__name__
                        raise ConfigError(f"data.column={self.column} of {self.path} has {kind}, not text")
                    yield text.encode(errors="replace").replace(b"\0", b"")
        except ConfigError:
            raise
        except Exception as error:  # whatever a download can raise: httpx, aiohttp, pyarrow, OSError
            raise ConfigError(f"{self.path} could not be read to its end: {_one_line(error)}") from error


def _load(source: Source) -> Any:
    """Return the rows as a streaming IterableDataset of `datasets`.

    If a split is sliced ([:1%]) or HF_HUB_OFFLINE is set, return a Dataset, downloaded or from the cache.
    """
    if Path(source.path).exists():
        raise ConfigError(f"data.path={source.path} exists here too and would be read instead of the hub")
    _look_up(source)
    import datasets  # seconds to import

    datasets.logging.set_verbosity_error()
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        builder = datasets.load_dataset_builder(
            source.path, source.name, data_files=source.files, revision=source.revision
        )
        # After any failure, `datasets` silently uses whatever revision is in its cache.
        if COMMIT.fullmatch(source.revision) and builder.hash != source.revision:
            cached = f"datasets' cache has {builder.hash}"
            raise ConfigError(f"{source.path} at data.revision={source.revision} cannot be loaded; {cached}")
        if "[" not in source.split and not datasets.config.HF_HUB_OFFLINE:
            return builder.as_streaming_dataset(source.split)
        builder.download_and_prepare()
        return builder.as_dataset(source.split)
    except ConfigError:
        raise
    except ConnectionError as error:
        raise ConfigError(_unreachable(source, error)) from error
    except Exception as error:  # a missing configuration, split or file; a data set that is a program
        raise ConfigError(f"{source.path} could not be loaded from the hub: {_one_line(error)}") from error


def _look_up(source: Source) -> None:
    """Query the hub once before `datasets` does: without a network that would retry for half a minute."""
    import huggingface_hub
    from huggingface_hub.errors import (
        GatedRepoError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )
    from huggingface_hub.utils.logging import set_verbosity_error

    set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        huggingface_hub.HfApi().dataset_info(source.path, revision=source.revision, timeout=10)
    except OfflineModeIsEnabled:
        return  # `datasets` may have the data in its cache
    except RevisionNotFoundError:
        raise ConfigError(f"data.revision={source.revision} does not exist in {source.path}") from None
    except GatedRepoError:
        raise ConfigError(
            f"{source.path} is gated: accept its terms on the hub, then hf auth login"
        ) from None
    except RepositoryNotFoundError:
        raise ConfigError(f"data.path={source.path} is not a data set on the hub, or is private") from None
    except Exception as error:  # from the hub client's HTTP library: DNS, refused, time-out, 5xx
        raise ConfigError(_unreachable(source, error)) from error


def _unreachable(source: Source, error: Exception) -> str:
    offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
    return f"{source.path}: the hub cannot be reached{offline}: {_one_line(error)}; {OFFLINE_CHOICES}"


def _one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
