"""No text, for tasks, which generate their own sequences. The windows are blank."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from poslab.data.sources import TextSource

BLANK = b" " * 2**16  # enough for the windows of any task


class Source(TextSource):
    source: Literal["none"] = Field(description="no text, for tasks")
    pinned: ClassVar[bool] = True

    def label(self) -> str:
        return "no text"

    def read(self) -> Iterator[bytes]:
        yield BLANK

    def read_validation(self) -> Iterator[bytes]:
        yield BLANK
