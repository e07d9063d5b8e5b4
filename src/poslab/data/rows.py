"""Files with one document per row: JSON Lines, Parquet and folders saved by `datasets`.

Every error names the row by its file and its number in it, counted from 1.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from poslab.config.checking import did_you_mean
from poslab.config.schema import ConfigError

LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
SUFFIXES = (*LINES, ".parquet")
SAVED = "state.json"  # in a folder written by datasets' save_to_disk
SAVED_SPLITS = "dataset_dict.json"  # in one with a folder per split
BOM = b"\xef\xbb\xbf"
GZIP = b"\x1f\x8b"


def holds_rows(path: Path) -> bool:
    """Return whether a path has documents in rows: for a file by its name, for a folder by its files."""
    if path.is_dir():
        return (path / SAVED).is_file() or (path / SAVED_SPLITS).is_file()
    return path.name.lower().endswith(SUFFIXES)


def documents(path: Path, field: str) -> Iterator[bytes]:
    """Yield the UTF-8 text in `field` of each row. Raises ConfigError, which names the file and the row."""
    rows = _saved(path) if path.is_dir() else _parquet(path) if _is_parquet(path) else _lines(path)
    unit = "line" if not path.is_dir() and not _is_parquet(path) else "row"
    for number, row in rows:
        yield _text(row, field, f"data.path={path}: {unit} {number:,}")


def _text(row: Any, field: str, where: str) -> bytes:
    if not isinstance(row, Mapping):
        raise ConfigError(f"{where} is not an object with fields but {_kind(row)}")
    if field not in row:
        known = ", ".join(map(str, row)) or "none"
        near = did_you_mean(field, map(str, row))
        raise ConfigError(f"{where} has no field {field!r}{near}; it has {known}: choose data.field=NAME")
    text = row[field]
    if not isinstance(text, str):
        raise ConfigError(f"{where} has {_kind(text)} in the field {field!r}, not text")
    if "\0" in text:
        raise ConfigError(f"{where} has a NUL character, which separates documents: remove it")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{where} has half a character (U+{ord(text[error.start]):04X})") from None


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _is_parquet(path: Path) -> bool:
    return path.name.lower().endswith(".parquet")


@contextmanager
def opened(path: Path) -> Iterator[BufferedIOBase]:
    """Open a file and decompress it if its content is gzip. Raises ConfigError, also in the `with` block."""
    try:
        with path.open("rb") as file:
            zipped = file.read(len(GZIP)) == GZIP
        with gzip.open(path) if zipped else path.open("rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ConfigError(f"data.path={path} is a damaged gzip file: {error}") from None
    except OSError as error:
        raise ConfigError(f"data.path={path} cannot be read: {error.strerror}") from None


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    number = 0
    try:
        with opened(path) as file:
            for number, line in enumerate(file, start=1):
                if stripped := (line.removeprefix(BOM) if number == 1 else line).strip():
                    yield number, json.loads(stripped)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"data.path={path}: line {number:,} is not JSON ({error})") from None


def _parquet(path: Path) -> Iterator[tuple[int, Any]]:
    import pyarrow  # type: ignore[import-untyped]
    import pyarrow.parquet  # type: ignore[import-untyped]

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).strip().splitlines()[0][:200]
        raise ConfigError(f"data.path={path} cannot be read as Parquet: {reason}") from None


def _saved(path: Path) -> Iterator[tuple[int, Any]]:
    if (path / SAVED_SPLITS).is_file():
        splits = sorted(folder.name for folder in path.iterdir() if (folder / SAVED).is_file())
        named = " or ".join(f"data.path={path / split}" for split in splits) or "it has none"
        raise ConfigError(f"data.path={path} is a data set in splits: choose {named}")
    import datasets  # seconds to import

    try:
        rows = datasets.load_from_disk(str(path))
        yield from enumerate(rows, start=1)
    except Exception as error:  # whatever datasets and pyarrow raise for damaged files
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise ConfigError(f"data.path={path} cannot be read as a data set: {reason}") from None
