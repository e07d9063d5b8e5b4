"""Text of one's own: files that are a document each, or files of rows that are; gzip is read too.

A directory is read for its text files; for its files of rows where `field` is set or it has no text files.
"""

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from poslab.config.schema import ConfigError
from poslab.data import rows
from poslab.data.sources import TextSource

SUFFIXES = (".txt", ".text", ".md", ".rst", ".tex", ".py")  # in a directory; each also with .gz
GZIP = b"\x1f\x8b"


class Source(TextSource):
    source: Literal["text"] = Field(description="the module that reads the text")
    path: str | None = Field(min_length=1, description="a file, or a directory that is searched recursively")
    field: str | None = Field(
        default=None,
        min_length=1,
        description="of .jsonl, .parquet and saved data sets: what holds a row's text; null: text",
    )

    def label(self) -> str:
        return self._path().resolve().name

    def read(self) -> Iterator[bytes]:
        """Yield each file that is not empty, sorted by its path. Raises ConfigError where one is no text."""
        path = self._path()
        empty = True
        for document in self._documents(path):
            if document:
                empty = False
                yield document
        if empty:
            raise ConfigError(f"data.path={path} is empty")

    def _documents(self, path: Path) -> Iterator[bytes]:
        field = self.field or "text"
        if rows.holds_rows(path):
            yield from rows.documents(path, field)
            return
        if path.is_file():
            if self.field is not None:
                raise ConfigError(
                    f"data.field={field} is for files of rows ({' '.join(rows.SUFFIXES)}), not {path}"
                )
            yield read_text(path)
            return
        texts = [] if self.field is not None else _files(path, SUFFIXES)
        for file in texts:
            yield read_text(file)
        if not texts:
            files = _files(path, tuple(suffix.removesuffix(".gz") for suffix in rows.SUFFIXES))
            if not files:
                known = " ".join(rows.SUFFIXES if self.field is not None else (*SUFFIXES, *rows.SUFFIXES))
                raise ConfigError(f"data.path={path} has no text files ({known}, or text with .gz)")
            for file in files:
                yield from rows.documents(file, field)

    def _path(self) -> Path:
        if self.path is None:
            raise ConfigError("data=text needs data.path=FILE or DIRECTORY")
        path = Path(os.path.expanduser(self.path))
        try:
            path.stat()
        except FileNotFoundError:
            raise ConfigError(f"data.path={path} does not exist (looked in {Path.cwd()})") from None
        except OSError as error:
            raise ConfigError(f"data.path={path} cannot be read: {error.strerror}") from None
        if not (path.is_file() or path.is_dir()):
            raise ConfigError(f"data.path={path} is neither a file nor a directory")
        return path


def read_text(path: Path) -> bytes:
    """Return the UTF-8 text of a file, decompressed if it is gzip whatever its name. Raises ConfigError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"data.path={path} cannot be read: {error.strerror}") from None
    if content.startswith(GZIP):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ConfigError(f"data.path={path} is a damaged gzip file: {error}") from None
    elif path.name.lower().endswith(".gz"):
        raise ConfigError(f"data.path={path} is named .gz but is no gzip file: rename it")
    content = content.removeprefix(rows.BOM)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(f"data.path={path} is UTF-16, not UTF-8; {_conversion('UTF-16')}")
    if b"\0" in content:
        raise ConfigError(
            f"data.path={path} is binary (it holds NUL bytes); poslab reads UTF-8 text or gzip of it"
        )
    try:
        content.decode()
    except UnicodeDecodeError as error:
        where = f"byte 0x{content[error.start]:02x} at {error.start:,}"
        raise ConfigError(f"data.path={path} is not UTF-8 ({where}); {_conversion('LATIN1')}") from None
    return content


def _conversion(encoding: str) -> str:
    return f"if it is {encoding}, convert it: iconv -f {encoding} -t UTF-8 FILE > NEW"


def _files(root: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Return the files below `root` with one of the suffixes, sorted by their paths."""
    return sorted(_walk(root, suffixes), key=lambda file: file.relative_to(root).parts)


def _walk(root: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files of `_files` in any order, without hidden ones; links are followed once."""
    seen = set()

    def refuse(error: OSError) -> None:
        raise ConfigError(f"data.path={error.filename} cannot be read: {error.strerror}") from None

    for directory, below, files in os.walk(root, onerror=refuse, followlinks=True):
        real = os.path.realpath(directory)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in files:
            if not name.startswith(".") and name.lower().removesuffix(".gz").endswith(suffixes):
                yield Path(directory, name)
