"""The log of a run in the user's own process: a copy of everything that is printed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from poslab.study.display.run_bar import RunDisplay


@contextmanager
def copied_to(log: Path, display: RunDisplay) -> Iterator[None]:
    """Within the block, also append everything that is printed to `log`, except the bar of `display`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    before = sys.stdout, sys.stderr
    with log.open("ab", buffering=0) as copy:
        sys.stdout, sys.stderr = (_Copied(display, stream, copy) for stream in before)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            sys.stdout, sys.stderr = before


class _Copied:
    """A stream that also writes its text to the file `copy`."""

    def __init__(self, display: RunDisplay, stream: IO[str], copy: BinaryIO) -> None:
        self._display, self._stream, self._copy = display, stream, copy

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # the disk is full, or the log was closed while a thread printed
            self._copy.write(text.encode(errors="replace"))
        self._display.erase()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
