"""Documents from an npm or Debian package, which `poslab fetch-text NAME` stores in the folder read here.

The folder is named by the SHA-256 of the text, so another version of a package is another text.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from poslab.config.installation import typed
from poslab.config.schema import ConfigError
from poslab.data.directories import cache_directory
from poslab.data.sources import TextSource
from poslab.data.sources.text import read_text


class Source(TextSource):
    source: Literal["package"] = Field(description="the module that reads the text")
    name: str = Field(pattern=r"^\w+$", description="the name of the option file, for fetch-text")
    title: str = Field(min_length=1, description="the text's name in reports")
    registry: Literal["npm", "apt"] = Field(description="the program that fetches the package")
    package: str = Field(pattern=r"^[\w@/.+:=-]+$", description="the package, perhaps with its version")
    folder: str = Field(min_length=1, description="a pattern for the folder in the package")
    suffix: str = Field(min_length=1, description="how the names of documents end")
    without: str | None = Field(min_length=1, description="a folder in `folder` that is left out; null: none")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="hash of the documents, a NUL byte after each")

    pinned: ClassVar[bool] = True

    def label(self) -> str:
        return self.title

    def read(self) -> Iterator[bytes]:
        """Yield the documents, sorted by path. Raises ConfigError if they have not been fetched."""
        if not self.place().is_dir():
            raise ConfigError(f"data={self.name} is not on this machine: {typed('fetch-text')} {self.name}")
        yield from documents(sorted(self.place().iterdir()))

    def place(self) -> Path:
        """Return the folder with the documents."""
        return cache_directory().parent / "texts" / self.sha256

    def chosen(self, root: Path) -> list[Path]:
        """Return the documents among the files of the unpacked package at `root`, sorted by path."""
        return sorted(
            path
            for folder in root.glob(self.folder)
            for path in folder.rglob(f"*{self.suffix}")
            if path.is_file() and path.relative_to(folder).parts[0] != self.without
        )


def documents(paths: Iterable[Path]) -> Iterator[bytes]:
    """Yield the UTF-8 text of each file that is not empty. Raises ConfigError if one is not UTF-8 text."""
    for path in paths:
        if content := bytes(read_text(path)[:]):
            yield content


def digest(texts: Iterable[bytes]) -> str:
    """Return the SHA-256 of the documents, with a NUL byte after each."""
    sha256 = hashlib.sha256()
    for text in texts:
        sha256.update(text + b"\0")
    return sha256.hexdigest()
