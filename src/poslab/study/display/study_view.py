"""The view of a running study: a live view of all its runs on a terminal, lines if the output is a file."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from poslab.config.text import counted, one_line
from poslab.study.display.progress_file import Progress, read_progress
from poslab.study.display.time_left import rough_duration, seconds_left

State = Literal["waiting", "running", "done", "failed", "elsewhere", "stopped", "abandoned"]

# The words in the line of counts, in their order. A stopped run has begun, but no process runs it now; an
# abandoned run has not begun, and no running command will start it.
WORDS: dict[State, str] = {
    "done": "done",
    "failed": "failed",
    "running": "running",
    "elsewhere": "run by another command",
    "stopped": "stopped",
    "abandoned": "abandoned",
    "waiting": "waiting",
}
STYLES: dict[State, str] = {"failed": "red", "stopped": "yellow"}  # such runs get a line with the reason
WIDE = 100  # columns that a terminal needs for tokens/s to be shown
READ_SECONDS = 1.0  # between two readings of the progress files
LINE_SECONDS = 60.0  # between two lines about all runs, if the output is not a terminal
NAMED = 8  # such a line names at most this many active runs


@dataclass
class Entry:
    """A run in the view of its study. The pool or `StudyFiles` sets `state` and `note`."""

    title: str
    directory: Path
    state: State
    note: str = ""  # such as the reason of a failure
    # Set by the view.
    last_state: State | None = None  # the state that the view showed last
    began: float | None = None  # seconds since 1970; None if the run began before the view
    progress: Progress | None = None

    @property
    def active(self) -> bool:
        return self.state in ("running", "elsewhere")


class StudyDisplay:
    """Shows the runs of a study; `entries` may change and grow while they are shown.

    A terminal has a live view. Any other output gets a line when a run starts or ends, and one line about all
    runs per minute. `durations` are the seconds that earlier runs took. Progress files are read once per
    second.
    """

    def __init__(
        self,
        console: Console,
        entries: Sequence[Entry],
        durations: Sequence[float] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.console = console
        self.entries = entries
        self.durations = list(durations)
        self.clock = clock
        self.live = Live(console=console, auto_refresh=False) if console.is_interactive else None
        self.read_at = self.printed_at = clock()
        self.followers: list[Callable[[], None]] = []  # called at each update, after the progress is read
        self._note_changes()

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        self._read_progress()
        self._show()
        return self

    def __exit__(self, *error: object) -> None:
        self._note_changes()
        if self.live is not None:
            self.live.update(Group(self._counts(None), *self._failures()))
            self.live.stop()

    def update(self) -> None:
        """Show what has changed. Call this several times per second; it is fast."""
        changed = self._note_changes()
        due = self.clock() - self.read_at >= READ_SECONDS
        if due:
            self._read_progress()
        if due or changed:
            self._show()
        for follow in self.followers:
            follow()

    def print_line(self, text: str) -> None:
        """Print a line above the live view."""
        self.console.print(one_line(text), markup=False, highlight=False, soft_wrap=True)

    def lines(self) -> list[str]:
        """Return the view as lines: the counts, the active runs, and the runs that failed or were stopped."""
        self._read_progress()
        failures = [text.plain for text in self._failures()]
        return [self._counts(self.seconds_left()).plain, *self._active(), *failures]

    def line(self) -> str:
        """Return the counts, the time left and the active runs in one line."""
        active = self._active()
        listed = "; ".join([*active[:NAMED], *(["..."] if len(active) > NAMED else [])])
        return " · ".join(filter(None, [self._counts(self.seconds_left()).plain, listed]))

    def seconds_left(self) -> float | None:
        """Return the estimated seconds until the last run ends, None if unknown."""
        now = self.clock()
        running = [
            (max(0.0, now - (entry.began or now)), entry.progress.seconds_left if entry.progress else None)
            for entry in self.entries
            if entry.state == "running"
        ]
        waiting = sum(entry.state == "waiting" for entry in self.entries)
        return seconds_left(self.durations, running, waiting)

    def _show(self) -> None:
        if self.live is not None:
            self.live.update(self._frame(), refresh=True)
        elif self.clock() - self.printed_at >= LINE_SECONDS:
            self.printed_at = self.clock()
            self.print_line(self.line())

    def _note_changes(self) -> bool:
        """Return whether a run's state has changed since the last call; print changes if no view is live."""
        changed = False
        for entry in self.entries:
            before, entry.last_state = entry.last_state, entry.state
            if before in (None, entry.state):
                continue
            changed = True
            line = f"{WORDS[entry.state]}: {entry.title}" + (f": {entry.note}" if entry.note else "")
            if entry.state == "running":
                entry.began, entry.progress = self.clock(), None
            elif entry.state == "done" and entry.began is not None:
                self.durations.append(self.clock() - entry.began)
                line += f", after {rough_duration(self.durations[-1])}"
            if self.live is None:
                self.print_line(line)
        return changed

    def _read_progress(self) -> None:
        self.read_at = self.clock()
        for entry in filter(lambda entry: entry.active, self.entries):
            progress = read_progress(entry.directory)
            # An older file is from an earlier process of the run.
            if progress is not None and progress.updated >= (entry.began or 0.0):
                entry.progress = progress

    def _counts(self, left: float | None) -> Text:
        """Return the counts: `6 runs: 2 done, 4 waiting · about 14 min left`; `left` is in seconds."""
        text = Text(f"{counted(len(self.entries), 'run')}: ", no_wrap=True, overflow="ellipsis")
        states = [entry.state for entry in self.entries]
        for number, state in enumerate(state for state in WORDS if state in states):
            text.append(", " if number else "")
            text.append(f"{states.count(state)} {WORDS[state]}", style=STYLES.get(state))
        if left is not None:
            rounded = max(round(left / 5), 1) * 5  # otherwise the number would change every second
            text.append(f" · about {rough_duration(rounded)} left")
        return text

    def _active(self) -> list[str]:
        """Return a short text for each active run: `rope / flash / seed 0 training 45 % loss 2.31`."""
        return [
            " ".join(filter(None, [_title(entry), *_cells(entry.progress)]))
            for entry in self.entries
            if entry.active
        ]

    def _failures(self) -> list[Text]:
        """Return a line for each run that failed or was stopped, with its reason."""
        return [
            Text(
                ": ".join(filter(None, [entry.state, _title(entry), one_line(entry.note)])),
                style=STYLES[state],
            )
            for state in STYLES
            for entry in self.entries
            if entry.state == state
        ]

    def _frame(self) -> RenderableType:
        """Return the whole view; Rich cuts it off if it is higher than the terminal."""
        table = Table.grid(padding=(0, 2, 0, 0))
        for entry in filter(lambda entry: entry.active, self.entries):
            progress = entry.progress
            cells: list[RenderableType] = [_title(entry), *_cells(progress)]
            if progress is not None:
                cells.insert(2, ProgressBar(total=1.0, completed=progress.share, width=10))
                if progress.tokens_per_second is not None and self.console.width >= WIDE:
                    cells.append(f"{progress.tokens_per_second:,.0f} tokens/s")
            table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))
        for column in table.columns[1:]:
            column.no_wrap = True  # a narrow terminal wraps the titles
        return Group(self._counts(self.seconds_left()), table, *self._failures())


def _cells(progress: Progress | None) -> list[str]:
    """Return the phase, the share done, the steps and the loss of a run as texts."""
    if progress is None:
        return ["starting"]
    return [
        one_line(progress.phase),
        f"{int(progress.share * 100)} %",
        "" if progress.step is None else f"step {progress.step}/{progress.steps}",
        "" if progress.loss is None else f"loss {progress.loss:.3f}",
    ]


def _title(entry: Entry) -> str:
    return one_line(entry.title) + (" (another command)" if entry.state == "elsewhere" else "")
