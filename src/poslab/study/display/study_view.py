"""A study while it is made: one live view of all its runs in a terminal, lines where no one watches."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live

from poslab.config.text import printable
from poslab.study.display.panel import Entry, State, clause, counts, failure_lines, frame
from poslab.study.display.progress_file import Progress, read_progress
from poslab.study.display.run_bar import duration
from poslab.study.display.time_left import Pace, seconds_left

__all__ = ["Entry", "State", "StudyDisplay"]

READ_SECONDS = 1.0  # between two looks at the progress files
NAMED = 8  # running runs in one line, where output is no terminal
WORDS: dict[State, str] = {
    "waiting": "waits again",
    "running": "started",
    "elsewhere": "made by another command",
}


@dataclass
class _Seen:
    """What the display knows of a run besides its entry; times are seconds since 1970."""

    state: State
    began: float | None = None  # by our clock; None when it ran already
    progress: Progress | None = None
    ends: dict[str, float] = field(default_factory=dict)  # of its phases, by the clock of the run's machine


class StudyDisplay:
    """Shows the runs of a study; whoever makes them sets `state` and `note` of the entries.

    `console` decides between a live view and lines: one as a run starts and ends, and every
    `seconds_between_lines` one on all. `pace` is what is known beforehand of how long runs take. `entries`
    may grow. What a run writes of itself is read at most once a second.
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
        self.seen = {entry.directory: _Seen(entry.state) for entry in entries}
        self.read = self.told = clock()

    def __enter__(self) -> Self:
        try:
            if self.live is not None:
                self.live.start()
            self._notice()
            self._look()
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
        self._notice()
        if self.live is not None:
            self.live.update(frame(self.console, self.entries, {}, None, last=True))
            self.live.stop()

    def update(self) -> None:
        """Notice what changed and show it. Cheap: to be called several times a second."""
        changed = self._notice()
        due = self.clock() - self.read >= READ_SECONDS
        if due:
            self._look()
        if due or changed:
            self._show()

    def say(self, text: str) -> None:
        """Print a line above the live view."""
        self.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def lines(self) -> list[str]:
        """The view as it stands now, in lines: the counts, and every run that is under way or has a note."""
        self._look()
        progress = self._progress()
        under_way = [clause(entry, progress.get(entry.directory)) for entry in _under_way(self.entries)]
        return [counts(self.entries, self._seconds_left()).plain, *under_way, *failure_lines(self.entries)]

    def _show(self) -> None:
        if self.live is not None:
            view = frame(self.console, self.entries, self._progress(), self._seconds_left())
            self.live.update(view, refresh=True)
        elif self.clock() - self.told >= self.seconds_between_lines:
            self.told = self.clock()
            self.say(self._line())

    def _notice(self) -> bool:
        """Whether a state changed since the last time; where there is no terminal, each change is a line."""
        changed = False
        for entry in self.entries:
            seen = self.seen.setdefault(entry.directory, _Seen(entry.state))
            if seen.state == entry.state:
                continue
            changed = True
            before, seen.state = seen.state, entry.state
            word = WORDS.get(entry.state, entry.state)
            if entry.state == "running":
                seen.began, seen.progress, seen.ends = self.clock(), None, {}
            said = f"{word}: {entry.title}" + (f": {entry.note}" if entry.note else "")
            if entry.state == "done" and before == "running":
                said += self._done(entry.directory, seen)
            if self.live is None:
                self.say(said)
        return changed

    def _done(self, directory: Path, seen: _Seen) -> str:
        """Keep how long a run took, and return how it ended in words."""
        self._follow(directory, seen)
        words = ""
        if seen.began is not None:
            elapsed = self.clock() - seen.began
            self.pace.finish(elapsed, seen.ends, seen.progress.updated if seen.progress else None)
            words = f", after {duration(elapsed)}"
        return words

    def _look(self) -> None:
        self.read = self.clock()
        for entry in _under_way(self.entries):
            self._follow(entry.directory, self.seen[entry.directory])

    def _follow(self, directory: Path, seen: _Seen) -> None:
        progress = read_progress(directory)
        if progress is None or (seen.began is not None and progress.updated < seen.began):
            return  # nothing there yet, or what an earlier attempt left
        if seen.progress is not None and seen.progress.phase != progress.phase:
            seen.ends[seen.progress.phase] = progress.phase_started
        seen.progress = progress

    def _progress(self) -> dict[Path, Progress]:
        return {path: seen.progress for path, seen in self.seen.items() if seen.progress is not None}

    def _seconds_left(self) -> float | None:
        courses = []
        for entry in self.entries:
            if entry.state == "running":
                seen = self.seen[entry.directory]
                began = seen.began
                if began is None and seen.progress is not None:
                    began = seen.progress.phase_started
                elapsed = 0.0 if began is None else max(0.0, self.clock() - began)
                courses.append(self.pace.course(elapsed, seen.progress))
        waiting = sum(entry.state == "waiting" for entry in self.entries)
        return seconds_left(self.pace.finished, courses, waiting)

    def _line(self) -> str:
        under_way, progress = _under_way(self.entries), self._progress()
        clauses = [clause(entry, progress.get(entry.directory)) for entry in under_way[:NAMED]]
        if len(under_way) > NAMED:
            clauses.append(f"... and {len(under_way) - NAMED} more")
        told = counts(self.entries, self._seconds_left()).plain
        return " · ".join([told, *(["; ".join(clauses)] if clauses else [])])


def _under_way(entries: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.state in ("running", "elsewhere")]
