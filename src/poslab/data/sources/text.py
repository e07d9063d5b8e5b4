"""Your own text: files that are one document each, or that have one document per row; gzip is read too.

In a directory, text files are read; files of rows are read if `field` is set or there are no text files.
"""

import codecs
import gzip
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal

from pydantic import Field

from poslab.config.schema import ConfigError
from poslab.data import rows
from poslab.data.sources import TextSource
from poslab.data.tokens import FileText, Text
from poslab.data.verification import files_state

SUFFIXES = (".txt", ".text", ".md", ".rst", ".tex", ".py")  # in a directory; each also with .gz
LARGE = 2**26  # bytes; a larger file is not read into memory
PIECE = 2**20  # bytes checked at a time


class Source(TextSource):
    source: Literal["text"] = Field(description="the module that reads the text")
    path: str | None = Field(min_length=1, description="a file, or a directory that is searched recursively")
    field: str | None = Field(
        default=None,
        min_length=1,
        description="the field with the text in .jsonl, .parquet and saved data sets; null: text",
    )

    def label(self) -> str:
        return self._path().resolve().name

    def read(self) -> Iterator[Text]:
        """Yield documents that are not empty, sorted by path. Raises ConfigError if a file is not text."""
        files, field = self._files()
        empty = True
        for file in files:
            for document in (read_text(Path(file)),) if field is None else rows.documents(Path(file), field):
                if len(document):
                    empty = False
                    yield document
        if empty:
            raise ConfigError(f"data.path={self._path()} is empty")

    def files_state(self) -> str | None:
        """Return the state of the files, including those in a folder saved by `datasets`."""
        files, _ = self._files()
        return files_state(chain.from_iterable(map(_inside, files)))

    def _files(self) -> tuple[list[str], str | None]:
        """Return the files, sorted by path, and the field of their rows; None if each file is a document."""
        path = self._path()
        field = self.field or "text"
        if rows.holds_rows(path):
            return [str(path)], field
        if path.is_file():
            if self.field is not None:
                raise ConfigError(
                    f"data.field={field} is for files of rows ({' '.join(rows.SUFFIXES)}), not {path}"
                )
            return [str(path)], None
        if self.field is None and (texts := _below(path, SUFFIXES)):
            return texts, None
        files = _below(path, tuple(suffix.removesuffix(".gz") for suffix in rows.SUFFIXES))
        if not files:
            known = " ".join(rows.SUFFIXES if self.field is not None else (*SUFFIXES, *rows.SUFFIXES))
            raise ConfigError(f"data.path={path} has no text files ({known}, or text with .gz)")
        return files, field

    def _path(self) -> Path:
        if self.path is None:
            raise ConfigError("data=text needs data.path=FILE or DIRECTORY")
        path = Path(os.path.expanduser(self.path))
        try:
            path.stat()
        except FileNotFoundError:
            raise ConfigError(
                f"data.path={path} does not exist (looked in {Path.cwd()}). For a run of an earlier command, "
                "give its text again: data=text data.path=FILE"
            ) from None
        except OSError as error:
            raise ConfigError(f"data.path={path} cannot be read: {error.strerror}") from None
        return path


def read_text(path: Path) -> Text:
    """Return the UTF-8 text of a file, decompressed if its content is gzip, whatever its name.

    An uncompressed file of more than LARGE bytes stays on the disk. Raises ConfigError.
    """
    with rows.opened(path) as file:
        head = file.read(len(rows.BOM))
        size = os.fstat(file.fileno()).st_size
        large = size > LARGE and not isinstance(file, gzip.GzipFile)
        content = head if large else head + file.read()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(f"data.path={path} is UTF-16, not UTF-8; {_conversion('UTF-16')}")
    mark = len(rows.BOM) if head == rows.BOM else 0
    text = FileText(path, mark, size - mark) if large else content[mark:]
    _check(text, path)
    return text


def _check(text: Text, path: Path) -> None:
    """Raise ConfigError if a text contains NUL bytes or is not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for begin in range(0, len(text), PIECE):
        piece = text[begin : begin + PIECE]
        if b"\0" in piece:
            raise ConfigError(
                f"data.path={path} is binary (it has NUL bytes); poslab reads UTF-8 text, plain or as gzip"
            )
        pending = len(decoder.getstate()[0])  # bytes of a character that began in the previous piece
        try:
            decoder.decode(piece, final=begin + PIECE >= len(text))
        except UnicodeDecodeError as error:
            position = begin - pending + error.start
            where = f"byte 0x{text[position : position + 1].hex()} at {position:,}"
            raise ConfigError(f"data.path={path} is not UTF-8 ({where}); {_conversion('LATIN1')}") from None


def _conversion(encoding: str) -> str:
    return f"if it is {encoding}, convert it: iconv -f {encoding} -t UTF-8 FILE > NEW"


def _inside(path: str) -> list[str]:
    """Return all files in a folder, or the file itself."""
    if not os.path.isdir(path):
        return [path]
    return sorted(os.path.join(directory, name) for directory, _, files in os.walk(path) for name in files)


def _below(root: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Return the files below `root` with one of the suffixes, sorted by the parts of their paths.

    Hidden files and folders are left out. Links are followed; a folder is visited once.
    """
    matching: list[str] = []
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
                matching.append(os.path.join(directory, name))
    return sorted(matching, key=lambda file: file.replace(os.sep, "\0"))
