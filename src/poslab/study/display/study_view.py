"""A running study: one live view of all its runs in a terminal, lines where output is a file."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from poslab.config.text import counted, one_line
from poslab.study.display.progress_file import Progress, read_progress
from poslab.study.display.time_left import Pace, rough_duration, seconds_left

State = Literal["waiting", "running", "done", "failed", "elsewhere", "stopped", "abandoned"]

# The words of the line of counts, in its order. A stopped run has begun, and no process runs it now; an
# abandoned one has not begun, and no running command has it.
COUNTED: dict[State, str] = {
    "done": "done",
    "failed": "failed",
    "running": "running",
    "elsewhere": "run by another command",
    "stopped": "stopped",
    "abandoned": "abandoned",
    "waiting": "waiting",
}
STYLES: dict[State, str] = {"failed": "red", "stopped": "yellow"}  # these get a line each with the reason
WIDE, MEDIUM = 110, 76  # columns of the terminal from which on more of a run is shown
SHORTEST_TITLE = 12  # columns
LAST_NOTES = 20  # lines on failed and stopped runs that stay in the terminal at the end
READ_SECONDS = 1.0  # between two readings of the progress files
NAMED = 8  # running runs in one line, where output is not a terminal
CHANGES: dict[State, str] = {  # the words of the line that says that a run is now in this state
    "waiting": "waits again",
    "running": "started",
    "elsewhere": "run by another command",
}


@dataclass
class Entry:
    """A run in the view of its study; the pool, or the reader of its files, sets `state` and `note`."""

    title: str
    directory: Path
    state: State
    note: str = ""  # such as why it failed


@dataclass
class _Track:
    """The last known state of a run; times are seconds since 1970."""

    state: State
    began: float | None = None  # by this machine's clock; None where it began before the display
    progress: Progress | None = None
    ends: dict[str, float] = field(default_factory=dict)  # of its phases, by the clock of the run's machine


class StudyDisplay:
    """Shows the runs of a study; its `entries` may change and grow meanwhile.

    On a terminal it is a live view; else a line when a run starts or ends, and one on all runs every
    `seconds_between_lines`. `pace` is how long runs have taken before. The runs' progress files are read
    once a second.
    """

    def __init__(
        self,
        console: Console,
        entries: Sequence[Entry],
        seconds_between_lines: float = 60.0,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.console = console
        self.entries = entries
        self.seconds_between_lines = seconds_between_lines
        self.pace = pace or Pace()
        self.clock = clock
        self.live = Live(console=console, auto_refresh=False) if console.is_interactive else None
        self.tracks = {entry.directory: _Track(entry.state) for entry in entries}
        self.read_at = self.printed_at = clock()
        self.followers: list[Callable[[], None]] = []  # called at each update, after the runs have been read

    def __enter__(self) -> Self:
        try:
            if self.live is not None:
                self.live.start()
            self._note_changes()
            self._read_progress()
            self._show()
        except BaseException:  # Ctrl-C in here: the terminal gets its cursor back
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        self._note_changes()
        if self.live is not None:
            self.live.update(frame(self.console, self.entries, {}, None, last=True))
            self.live.stop()

    def update(self) -> None:
        """Show what has changed. It is fast, and should be called several times per second."""
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
        """Return the view as lines: the counts, the active runs, and those that failed or were stopped."""
        self._read_progress()
        progress = self.progress()
        active = [clause(entry, progress.get(entry.directory)) for entry in _active(self.entries)]
        return [counts(self.entries, self.seconds_left()).plain, *active, *failure_lines(self.entries)]

    def _show(self) -> None:
        if self.live is not None:
            view = frame(self.console, self.entries, self.progress(), self.seconds_left())
            self.live.update(view, refresh=True)
        elif self.clock() - self.printed_at >= self.seconds_between_lines:
            self.printed_at = self.clock()
            self.print_line(self.line())

    def _note_changes(self) -> bool:
        """Return whether a run's state has changed since the last call; print changes without a live view."""
        changed = False
        for entry in self.entries:
            track = self.tracks.setdefault(entry.directory, _Track(entry.state))
            if track.state == entry.state:
                continue
            changed = True
            before, track.state = track.state, entry.state
            if entry.state == "running":
                track.began, track.progress, track.ends = self.clock(), None, {}
            line = f"{CHANGES.get(entry.state, entry.state)}: {entry.title}"
            line += f": {entry.note}" if entry.note else ""
            if entry.state == "done" and before == "running":
                line += self._note_duration(entry.directory, track)
            if self.live is None:
                self.print_line(line)
        return changed

    def _note_duration(self, directory: Path, track: _Track) -> str:
        """Add the duration of a finished run to the pace of the others, and return it in words."""
        self._follow(directory, track)
        if track.began is None:
            return ""
        elapsed = self.clock() - track.began
        self.pace.finish(elapsed, track.ends, track.progress.updated if track.progress else None)
        return f", after {rough_duration(elapsed)}"

    def _read_progress(self) -> None:
        self.read_at = self.clock()
        for entry in _active(self.entries):
            self._follow(entry.directory, self.tracks[entry.directory])

    def _follow(self, directory: Path, track: _Track) -> None:
        progress = read_progress(directory)
        if progress is None or (track.began is not None and progress.updated < track.began):
            return  # nothing is written yet, or only by an earlier process
        if track.progress is not None and track.progress.phase != progress.phase:
            track.ends[track.progress.phase] = progress.phase_started
        track.progress = progress

    def progress(self) -> dict[Path, Progress]:
        """Return how far each run is that has begun, by its directory."""
        return {path: track.progress for path, track in self.tracks.items() if track.progress is not None}

    def seconds_left(self) -> float | None:
        """Return the seconds until the last run ends, None while unknown."""
        courses = []
        for entry in self.entries:
            if entry.state == "running":
                track = self.tracks[entry.directory]
                began = track.began
                if began is None and track.progress is not None:
                    began = track.progress.phase_started
                elapsed = 0.0 if began is None else max(0.0, self.clock() - began)
                courses.append(self.pace.course(elapsed, track.progress))
        waiting = sum(entry.state == "waiting" for entry in self.entries)
        return seconds_left(self.pace.finished, courses, waiting)

    def line(self) -> str:
        """Return the counts, the time left and what is running."""
        active, progress = _active(self.entries), self.progress()
        clauses = [clause(entry, progress.get(entry.directory)) for entry in active[:NAMED]]
        if len(active) > NAMED:
            clauses.append(f"... and {len(active) - NAMED} more")
        line = counts(self.entries, self.seconds_left()).plain
        return " · ".join([line, *(["; ".join(clauses)] if clauses else [])])


def _active(entries: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.state in ("running", "elsewhere")]


def counts(entries: Sequence[Entry], left: float | None) -> Text:
    """Return counts such as 6 runs: 2 done, 2 running, 2 waiting · about 14 min left (`left` in seconds)."""
    text = Text(f"{counted(len(entries), 'run')}: ")
    states = [entry.state for entry in entries]
    for number, state in enumerate(state for state in COUNTED if state in states):
        text.append(", " if number else "")
        text.append(f"{states.count(state)} {COUNTED[state]}", style=STYLES.get(state))
    if left is not None:
        rounded = max(round(left / 5), 1) * 5  # or else it would change every second
        text.append(f" · about {rough_duration(rounded)} left")
    return text


def clause(entry: Entry, progress: Progress | None) -> str:
    """Return an active run in a few words, such as: rope / flash / seed 0 training 45 % loss 2.31."""
    title = _title(entry)
    if progress is None:
        return f"{title} starting"
    loss = "" if progress.loss is None else f" loss {progress.loss:.2f}"
    return f"{title} {one_line(progress.phase)} {_percent(progress)}{loss}"


def failure_lines(entries: Sequence[Entry]) -> list[str]:
    """Return a line for each run that failed or was stopped, with its reason."""
    return [_note(entry) for state in STYLES for entry in entries if entry.state == state]


def frame(
    console: Console,
    entries: Sequence[Entry],
    progress: Mapping[Path, Progress],
    left: float | None,
    *,
    last: bool = False,
) -> RenderableType:
    """Return the whole view, never higher than the terminal; `left` is in seconds.

    The `last` view, which stays in the terminal, has no bars, and shows reasons in full.
    """
    notes = [entry for state in STYLES for entry in entries if entry.state == state]
    if last:
        return Group(counts(entries, None), *_notes(notes, LAST_NOTES, "fold"))
    room = max(console.height - 2, 2)  # without the line of counts and the cursor's
    lines = list(_notes(notes, max(room // 3, 1), "ellipsis"))
    running = [entry for state in ("running", "elsewhere") for entry in entries if entry.state == state]
    count = _that_fit(len(running), room - len(lines))
    table = _bars(console.width, [(entry, progress.get(entry.directory)) for entry in running[:count]])
    more = [_more(len(running) - count)] if count < len(running) else []
    header = counts(entries, left)
    header.no_wrap, header.overflow = True, "ellipsis"
    return Group(header, *([table] if count else []), *more, *lines)


class _Title:
    """A title that is cut in its middle: its ends, the arm and the seed, distinguish runs."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(len(self.text), SHORTEST_TITLE), len(self.text))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text, room = self.text, max(options.max_width, 1)
        if len(text) > room:
            tail = (room - 1) // 2
            text = f"{text[: room - 1 - tail]}…{text[len(text) - tail :]}"
        yield Text(text, no_wrap=True, overflow="crop")


def _bars(width: int, runs: Sequence[tuple[Entry, Progress | None]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for entry, progress in runs:
        cells: list[RenderableType] = [_Title(_title(entry))]
        if progress is None:
            table.add_row(*cells, Text("starting", no_wrap=True, style="dim"))
            continue
        cells.append(Text(one_line(progress.phase), no_wrap=True, overflow="ellipsis"))
        if width >= MEDIUM:
            bar_width = 24 if width >= WIDE else 10
            cells.append(ProgressBar(total=1.0, completed=progress.share, width=bar_width))
        cells.append(_cell(_percent(progress)))
        if width >= MEDIUM:
            step = "" if progress.step is None else f"{progress.step}/{progress.steps}"
            cells.append(_cell(f"step {step}" if step and width >= WIDE else step))
        cells.append(_cell("" if progress.loss is None else f"loss {progress.loss:.3f}"))
        if width >= WIDE:
            rate = progress.tokens_per_second
            cells.append(_cell("" if rate is None else f"{rate:,.0f} tokens/s"))
        table.add_row(*cells)
    for column in table.columns[2:]:
        column.no_wrap = True  # a narrow terminal cuts the title, then the phase
    return table


def _cell(text: str) -> Text:
    return Text(text, no_wrap=True, justify="right")


def _notes(
    entries: Sequence[Entry], room: int, overflow: Literal["fold", "ellipsis"]
) -> Iterator[RenderableType]:
    count = _that_fit(len(entries), room)
    for entry in entries[:count]:
        yield Text(_note(entry), style=STYLES[entry.state], no_wrap=overflow == "ellipsis", overflow=overflow)
    if count < len(entries):
        yield _more(len(entries) - count)


def _that_fit(number: int, room: int) -> int:
    """Return how many of `number` lines fit: else the last line counts those left out."""
    return number if number <= room else max(room - 1, 0)


def _more(number: int) -> Text:
    return Text(f"... and {number} more", style="dim", no_wrap=True)


def _note(entry: Entry) -> str:
    return f"{entry.state}: {_title(entry)}" + (f": {one_line(entry.note)}" if entry.note else "")


def _title(entry: Entry) -> str:
    return one_line(entry.title) + (" (another command)" if entry.state == "elsewhere" else "")


def _percent(progress: Progress) -> str:
    return f"{int(progress.share * 100)} %"
