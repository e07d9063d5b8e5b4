"""A tracker whose failures never end the run, and whose end takes a limited time."""

import re
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from poslab.config.text import one_line, without_secrets

FINISH_SECONDS = 180.0  # to send what is left at the end

PATH = re.compile(r"(?<![\w:/])/(?:[^\s/'\"]+/)+")  # records are published: no path of the machine


class Tracker(Protocol):
    """Shows a run while it trains. Its methods may raise: the run goes on without it.

    After an interruption the next process opens a new one, with the rows so far.
    """

    place: Mapping[str, Any]  # where the run is shown, for its manifest

    def log(self, row: Mapping[str, Any]) -> None:
        """Show a row of metrics.csv, which may also have memory_bytes. Training waits meanwhile."""

    def finish(self, manifest: str, exit_code: int) -> None:
        """Show the end of the run, whose files are all written; `manifest` is the text of its manifest.

        Called in a thread of its own. Returns once all is sent.
        """

    def abandon(self) -> None:
        """Release what it holds without waiting, after a failure or while `finish` is still running."""


class Guarded:
    """Calls a tracker until it fails, which is printed in one line and noted in `place`."""

    def __init__(self, title: str, opening: Callable[[], Tracker]) -> None:
        """`title` is the tracker's name in messages; `opening` makes the tracker, and may raise."""
        self.place: Mapping[str, Any] | None = None
        self._title = title
        self._tracker: Tracker | None = None
        try:
            self._tracker = opening()
            self.place = self._tracker.place
        except Exception as error:
            self._fail(error)

    def log(self, row: Mapping[str, Any]) -> None:
        if self._tracker is not None:
            try:
                self._tracker.log(row)
            except Exception as error:
                self._fail(error)

    def finish(self, manifest: str, exit_code: int, wait: float | None = None) -> None:
        """Finish the tracker and return, after `wait` seconds at the latest."""
        tracker = self._tracker
        if tracker is None:
            return
        thread = threading.Thread(target=self._finish, args=(tracker, manifest, exit_code), daemon=True)
        try:
            thread.start()
            thread.join(FINISH_SECONDS if wait is None else wait)
        finally:  # also where the run is stopped meanwhile
            given_up, self._tracker = self._tracker is not None, None
            if given_up:
                tracker.abandon()
        if given_up and wait is None:
            self._print(f"did not finish in {FINISH_SECONDS:g} s; what is not sent is on disk")

    def _finish(self, tracker: Tracker, manifest: str, exit_code: int) -> None:
        try:
            tracker.finish(manifest, exit_code)
        except Exception as error:
            if self._tracker is not None:  # not given up
                self._fail(error)
            return
        if self._tracker is not None:
            self.place = {**(self.place or {}), "complete": True}
            self._tracker = None

    def _fail(self, error: Exception) -> None:
        reason = error_line(error)
        self.place = {**(self.place or {}), "failed": reason}
        self._print(f"failed, and the run goes on without it: {reason}")
        tracker, self._tracker = self._tracker, None
        if tracker is not None:
            with suppress(Exception):
                tracker.abandon()

    def _print(self, text: str) -> None:
        print(f"{self._title} {text}", file=sys.stderr, flush=True)


def error_line(error: Exception) -> str:
    """An error in one line, without directories."""
    return f"{type(error).__name__}: {PATH.sub('', without_secrets(one_line(error)))[:300]}"
