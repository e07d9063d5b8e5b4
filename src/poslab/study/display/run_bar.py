"""The progress of one run: a bar with loss, tokens/s and time left, or lines if output is not a terminal."""

import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from poslab.study.display.progress_file import Progress, write_progress
from poslab.study.display.time_left import rough_duration

REFRESH_SECONDS = 1.0  # not at every step, since reading the loss waits for the device
LINES = 10  # lines per phase, if the output is not a terminal
WIDTH = 16  # characters of the bar
BASIS = 0.02  # the share of a phase after which its time is estimated: the first steps compile and warm up
ERASE = "\r\x1b[K"  # clears the current line of the terminal


class RunDisplay:
    """Shows the run `title` on standard error, and writes its progress to progress.json in `directory`."""

    def __init__(self, title: str, directory: Path | None = None, quiet: bool = False) -> None:
        self.title = title
        self.directory = directory
        self.quiet = quiet
        self.terminal = sys.stderr if sys.stderr.isatty() and not quiet else None
        self.drawn = False  # whether the bar is on the terminal's current line
        self._begin("", 1)

    def _begin(self, phase: str, steps: int) -> None:
        self.name = phase
        self.steps = steps
        self.before: float | None = None  # the share of the phase that an earlier process did, once known
        self.started = self.drawn_at = time.monotonic()
        self.lines = 0

    @contextmanager
    def phase(self, name: str, steps: int = 1) -> Iterator[None]:
        """Show a phase of the run, such as training, with its own bar."""
        self._begin(name, steps)
        if self.directory is not None:
            write_progress(self.directory, Progress(name, 0.0, time.time()))
        try:
            yield
        finally:
            if self.drawn:
                self._write("\n")

    def step(self, step: int, loss: Callable[[], float], tokens_per_second: float) -> None:
        """Show an optimizer step. `loss` returns nats per token, and is called only if the step is shown."""
        share = step / self.steps
        if self.before is None:
            self.before = (step - 1) / self.steps
        if self._is_due(share):
            value = loss()
            finite = value if math.isfinite(value) else None  # JSON has no NaN
            self._show(
                Progress(self.name, share, time.time(), step, self.steps, finite, tokens_per_second),
                f"step {step}/{self.steps}  loss {value:.3f}  {tokens_per_second:,.0f} tokens/s",
            )

    def share(self, name: str, share: float) -> None:
        """Show that the fraction `share`, from 0 to 1, of a phase without steps is done."""
        if self._is_due(share):
            self._show(Progress(self.name, share, time.time()), name)

    def _is_due(self, share: float) -> bool:
        """Return whether to show the progress: a second after the last time, or when the phase is done."""
        now = time.monotonic()
        if now - self.drawn_at < REFRESH_SECONDS and share < 1:
            return False
        self.drawn_at = now
        return True

    def _show(self, progress: Progress, detail: str) -> None:
        share, before = progress.share, self.before or 0.0
        done, left = share - before, None
        if done >= BASIS * (1 - before):
            left = (time.monotonic() - self.started) * (1 - share) / done
        if self.directory is not None:
            write_progress(self.directory, replace(progress, seconds_left=left))
        remaining = [] if left is None else [f"{rough_duration(left)} left"]
        if self.terminal is not None:
            bar = "#" * round(share * WIDTH)
            head = f"{self.title}  {self.name}  [{bar:<{WIDTH}}] {share * 100:3.0f} %"
            line = "  ".join([head, *remaining, detail])
            self._write(ERASE + line[: shutil.get_terminal_size().columns - 1])
            self.drawn = True
        elif not self.quiet and math.floor(share * LINES) > self.lines:
            self.lines = math.floor(share * LINES)
            with suppress(OSError):  # a log file on a full disk must not end the run
                print(self.title, detail, *remaining, sep="  ", file=sys.stderr, flush=True)

    def _write(self, text: str) -> None:
        """Write to the terminal without a copy in the log."""
        assert self.terminal is not None
        self.terminal.write(text)
        self.terminal.flush()
        self.drawn = False

    def erase(self) -> None:
        """Remove the bar before something else is printed; the next step draws it again."""
        if self.drawn:
            self._write(ERASE)
