"""The report of a study while it runs: its page is written repeatedly, and reloads itself."""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from types import TracebackType

from poslab.record.reader import study_list_of
from poslab.study.display.study_view import StudyDisplay

SECONDS = 30.0  # between two writings at least
SHARE = 20  # the wait before the next writing, in durations of the last, so that runs lose little time


@dataclass(eq=False)
class LiveReport:
    """Writes the page of a study repeatedly while its runs run inside, as soon as one of them is done.

    A page that cannot be written does not disturb the study: the report at the end says why. Commands without
    a study's name share a page: while it is on the runs of another one, this one writes none.
    """

    study: str
    runs: Path
    reports: Path
    display: StudyDisplay
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.path = self.reports / self.study / "index.html"
        self.closed = False
        self._writer: Thread | None = None
        self._due_at = -math.inf
        self._page: str | None = None  # the last one, as it is without a status

    def __enter__(self) -> None:
        self.display.followers.append(self.update)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for an unfinished writing once the runs have ended, before the whole report is written.

        Where the study was stopped, leave the last page, without a status, and wait for nothing.
        """
        self.closed = True
        if kind is None:
            if self._writer is not None:  # the report forks processes, which should inherit no running thread
                self._writer.join()
        elif self._page is not None:
            with suppress(Exception):
                if self._is_on_these_runs():
                    self.path.write_text(self._page, encoding="utf-8")

    def update(self) -> None:
        """Begin to write where the last page is old; the display calls it at each update. Does not wait."""
        done = any(entry.state == "done" for entry in self.display.entries)
        if not done or self.clock() < self._due_at or (self._writer is not None and self._writer.is_alive()):
            return
        status = f"{self.display.line()} · as of {time.strftime('%H:%M:%S')}"
        self._writer = Thread(target=self._write, args=(status,), name="live report", daemon=True)
        self._writer.start()

    def _write(self, status: str) -> None:
        began = self.clock()
        with suppress(Exception):
            # Imported here, since they take seconds, which a study has while its runs run.
            from poslab.record.files import write_atomic
            from poslab.report.write import live_pages

            live, ended = live_pages(self.study, self.runs, status, int(SECONDS))
            if not self.closed and self._is_on_these_runs():
                write_atomic(self.path, live)
                if self._page is None:
                    self.display.print_line(f"follow in a browser: {self.path}")
                self._page = ended
        self._due_at = self.clock() + max(SECONDS, SHARE * (self.clock() - began))

    def _is_on_these_runs(self) -> bool:
        """Return whether no other command without a study's name has begun or ended since."""
        folder = self.runs / self.study
        runs = {entry.directory.name for entry in self.display.entries if entry.directory.parent == folder}
        latest = study_list_of(folder).latest
        return not latest or runs <= {*latest}
