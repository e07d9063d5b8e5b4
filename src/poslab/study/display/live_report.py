"""The report of a study while it runs: a page that is rewritten repeatedly and reloads itself."""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from types import TracebackType

from poslab.study.display.study_view import StudyDisplay

SECONDS = 30.0  # at least this long between two updates of the page
SHARE = 20  # the wait before the next update, in durations of the last one, so that runs lose little time


@dataclass(eq=False)
class LiveReport:
    """Writes the page of a study repeatedly while the runs in its `with` block run, once one of them is done.

    A page that cannot be written does not disturb the study: the report at the end prints the reason.
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
        self._page: str | None = None  # the last page that was written, without its status line

    def __enter__(self) -> None:
        self.display.followers.append(self.update)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait until the last update is finished, since the whole report is written next.

        If the study was stopped, do not wait, and replace the page with the last one without its status.
        """
        self.closed = True
        if kind is None:
            if self._writer is not None:  # the report forks processes, which should inherit no running thread
                self._writer.join()
        elif self._page is not None:
            with suppress(Exception):
                self.path.write_text(self._page, encoding="utf-8")

    def update(self) -> None:
        """Start to write the page, without waiting, if a run is done and the last page is old."""
        done = any(entry.state == "done" for entry in self.display.entries)
        if not done or self.clock() < self._due_at or (self._writer is not None and self._writer.is_alive()):
            return
        status = f"{self.display.line()} · as of {time.strftime('%H:%M:%S')}"
        self._writer = Thread(target=self._write, args=(status,), name="live report", daemon=True)
        self._writer.start()

    def _write(self, status: str) -> None:
        began = self.clock()
        with suppress(Exception):
            # Imported here, since this takes seconds, which do not matter while the runs run.
            from poslab.record.files import write_atomic
            from poslab.report.write import live_pages

            live, ended = live_pages(self.study, self.runs, status, int(SECONDS))
            if not self.closed:
                write_atomic(self.path, live)
                if self._page is None:
                    self.display.print_line(f"live report (open in a browser): {self.path}")
                self._page = ended
        self._due_at = self.clock() + max(SECONDS, SHARE * (self.clock() - began))
