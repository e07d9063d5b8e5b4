"""Text files: one file, or a directory whose files are a document each; gzip is read too."""

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from poslab.config.schema import ConfigError
from poslab.data.sources import TextSource

SUFFIXES = (".txt", ".text", ".md", ".rst", ".tex", ".py")  # in a directory; each also with .gz
GZIP = b"\x1f\x8b"


class Source(TextSource):
    source: Literal["text"]
    path: str | None = Field(min_length=1, description="a file, or a directory that is searched recursively")

    def label(self) -> str:
        return self._path().resolve().name

    def read(self) -> Iterator[bytes]:
        """Each file that is not empty, sorted by its path. Raises ConfigError where one cannot be text."""
        path = self._path()
        if path.is_dir():
            files = sorted(_text_files(path), key=lambda file: file.relative_to(path).parts)
            if not files:
                known = " ".join(SUFFIXES)
                raise ConfigError(f"data.path={path} has no text files ({known}, or these with .gz)")
        else:
            files = [path]
        empty = True
        for file in files:
            content = read_text(file)
            if content:
                empty = False
                yield content
        if empty:
            raise ConfigError(f"data.path={path} is empty")

    def _path(self) -> Path:
        if self.path is None:
            raise ConfigError("data=text needs data.path=FILE or DIRECTORY")
        path = Path(self.path).expanduser()
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
    """The UTF-8 text of a file, decompressed if it is gzip whatever its name. Raises ConfigError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"data.path={path} cannot be read: {error.strerror}") from None
    if content.startswith(GZIP):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ConfigError(f"data.path={path} is a damaged gzip file: {error}") from None
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


def _text_files(root: Path) -> Iterator[Path]:
    """The text files below `root`; hidden files and directories are left out, links are followed once."""
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
            if not name.startswith(".") and name.lower().removesuffix(".gz").endswith(SUFFIXES):
                yield Path(directory, name)
