"""One run in the terminal: a bar with loss, tokens/s and time left, or lines where output is a file."""

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from rich.console import Console
from rich.file_proxy import FileProxy
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from poslab.study.display.progress_file import ProgressFile
from poslab.study.display.time_left import rough_duration

REFRESH_SECONDS = 0.5  # not at every step: reading the loss waits for the device
LINES = 10  # lines per phase, where output is not a terminal,
LINE_SECONDS = 1.0  # and between two lines: a phase of a second needs only its last one


class RunDisplay:
    """Shows the run `title` on `console`, and writes the same to the file `progress` for other processes.

    Console(quiet=True) shows nothing; the file is still written.
    """

    def __init__(
        self, title: str, console: Console | None = None, progress: ProgressFile | None = None
    ) -> None:
        self.title = title
        self.progress = progress
        self.console = console or Console(stderr=True, highlight=False)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[detail]}"),
            TimeRemainingColumn(compact=True),
            console=self.console,
            transient=False,
        )
        # A bar redirects standard error while it is shown, so that a quiet one would swallow other output.
        self.has_bar = self.console.is_terminal and not self.console.quiet
        self.task: TaskID | None = None
        self.shown = 0.0
        self.lines = 0
        self.steps = 1
        self.before: float | None = None  # the share of the phase that an earlier process did, once known
        self.started = time.monotonic()

    @contextmanager
    def phase(self, name: str, steps: int = 1) -> Iterator[None]:
        """Show a part of the run, such as training, with a bar of its own."""
        self.steps, self.before = steps, None
        self.shown = self.started = time.monotonic()
        self.lines = 0
        if self.progress is not None:
            self.progress.begin(name)
        if not self.has_bar:
            yield
        else:
            with self.bar, self._breakpoints():
                if self.task is not None:
                    self.bar.remove_task(self.task)
                self.task = self.bar.add_task(f"{self.title}  {name}", total=1.0, detail="")
                yield
        if self.progress is not None:
            self.progress.end()

    @contextmanager
    def _breakpoints(self) -> Iterator[None]:
        """Let `breakpoint()` inside remove the bar first, which would write over the debugger's lines."""
        before = sys.breakpointhook

        def hook(*given: Any, **named: Any) -> Any:
            self.bar.stop()
            if "PYTHONBREAKPOINT" in os.environ or before is not sys.__breakpointhook__:
                return before(*given, **named)
            from pdb import Pdb

            return Pdb().set_trace(sys._getframe(1))  # where breakpoint() stands, and not here

        sys.breakpointhook = hook
        try:
            yield
        finally:
            sys.breakpointhook = before

    @contextmanager
    def copied_to(self, log: Path) -> Iterator[None]:
        """Append what is printed inside to the file `log`, too, except the bar itself."""
        log.parent.mkdir(parents=True, exist_ok=True)
        before = sys.stdout, sys.stderr
        with log.open("ab", buffering=0) as copy:
            sys.stdout = _Copied(self, before[0], copy)
            sys.stderr = _Copied(self, before[1], copy)
            try:
                yield
            finally:
                for stream in (sys.stdout, sys.stderr):
                    stream.flush()
                sys.stdout, sys.stderr = before

    def step(self, step: int, loss: Callable[[], float], tokens_per_second: float) -> None:
        """Show an optimizer step; `loss`, in nats per token, is only called when it is shown."""
        share = step / self.steps
        if self.before is None:
            self.before = (step - 1) / self.steps
            if self.progress is not None:
                self.progress.resume(self.before)
        visible, written = self._due(share), self.progress is not None and self.progress.due(share)
        if not (visible or written):
            return
        value = loss()
        if visible:
            detail = f"step {step}/{self.steps}  loss {value:.3f}  {tokens_per_second:,.0f} tokens/s"
            self._show(share, detail)
        if self.progress is not None and written:
            self.progress.write(share, step, self.steps, value, tokens_per_second)

    def share(self, name: str, share: float) -> None:
        """Show that `share`, between 0 and 1, of a phase without steps is done."""
        if self._due(share):
            self._show(share, name)
        if self.progress is not None and self.progress.due(share):
            self.progress.write(share)

    def _due(self, share: float) -> bool:
        now = time.monotonic()
        if self.has_bar:
            due = now - self.shown >= REFRESH_SECONDS or share >= 1
        else:
            waited = now - self.shown >= LINE_SECONDS or share >= 1
            due = waited and math.floor(share * LINES) > self.lines
        if due:
            self.shown, self.lines = now, math.floor(share * LINES)
        return due

    def _show(self, share: float, detail: str) -> None:
        if self.task is not None:
            self.bar.update(self.task, completed=share, detail=detail)
        else:
            left = (time.monotonic() - self.started) * (1 - share) / (share - (self.before or 0.0))
            line = f"{self.title}  {detail}  {rough_duration(left)} left"
            with suppress(OSError):  # a log file on a full disk must not end the run
                self.console.print(line, markup=False, soft_wrap=True)


class _Copied(FileProxy):
    """A stream with a copy of its text in the file `copy`; while a bar is shown, Rich prints above it."""

    def __init__(self, display: RunDisplay, stream: IO[str], copy: BinaryIO) -> None:
        super().__init__(display.console, stream)
        self._display = display
        self._copy = copy

    def write(self, text: str) -> int:
        with suppress(OSError):  # a log file on a full disk
            self._copy.write(text.encode(errors="replace"))
        if self._display.bar.live.is_started:
            super().write(text)
        else:
            super().flush()
            self.rich_proxied_file.write(text)
        return len(text)

    def flush(self) -> None:
        super().flush()
        self.rich_proxied_file.flush()
