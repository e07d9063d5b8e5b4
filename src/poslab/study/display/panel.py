"""How a study's runs look: the line of counts, a bar for each run under way, a line for what went wrong."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from poslab.config.text import printable
from poslab.study.display.progress_file import Progress
from poslab.study.display.run_bar import duration

State = Literal["waiting", "running", "done", "failed", "elsewhere", "stopped"]

# In the order in which they are counted. stopped: begun, and no process goes on with it.
COUNTED: dict[State, str] = {
    "done": "done",
    "failed": "failed",
    "running": "running",
    "elsewhere": "made by another command",
    "stopped": "stopped",
    "waiting": "waiting",
}
STYLES: dict[State, str] = {"failed": "red", "stopped": "yellow"}  # those that are named with their reason
WIDE, MEDIUM = 110, 76  # columns of the terminal from which on there is room for more of a run
SHORTEST_TITLE = 12  # columns
LAST_NOTES = 20  # lines on what went wrong that stay in the terminal at the end


@dataclass
class Entry:
    """A run in the view of its study; `state` and `note` are set by whoever knows."""

    title: str
    directory: Path
    state: State
    note: str = ""  # such as why it failed


def counts(entries: Sequence[Entry], left: float | None) -> Text:
    """Such as: 6 runs: 2 done, 2 running, 2 waiting · about 14 min left. `left` is in seconds."""
    text = Text(f"{len(entries)} run{'s' * (len(entries) != 1)}: ")
    states = [entry.state for entry in entries]
    for number, state in enumerate(state for state in COUNTED if state in states):
        text.append(", " if number else "")
        text.append(f"{states.count(state)} {COUNTED[state]}", style=STYLES.get(state))
    if left is not None:
        coarse = max(round(left / 5), 1) * 5  # a number that does not flicker
        text.append(f" · about {duration(coarse)} left")
    return text


def clause(entry: Entry, progress: Progress | None) -> str:
    """A run under way in a few words, such as: rope / flash / seed 0 training 45 % loss 2.31."""
    words = _title(entry)
    if progress is None:
        return f"{words} starting"
    loss = "" if progress.loss is None else f" loss {progress.loss:.2f}"
    return f"{words} {printable(progress.phase)} {_percent(progress)}{loss}"


def failure_lines(entries: Sequence[Entry]) -> list[str]:
    """A line for each run that failed or was stopped, with its reason."""
    return [_note(entry) for state in STYLES for entry in entries if entry.state == state]


def frame(
    console: Console,
    entries: Sequence[Entry],
    progress: Mapping[Path, Progress],
    left: float | None,
    *,
    last: bool = False,
) -> RenderableType:
    """The whole view, never higher than the terminal; `left` is in seconds.

    The `last` one stays in the terminal: without bars, and with reasons in full.
    """
    notes = [entry for state in STYLES for entry in entries if entry.state == state]
    if last:
        return Group(counts(entries, None), *_notes(notes, LAST_NOTES, "fold"))
    room = max(console.height - 2, 2)  # the line of counts, and the one of the cursor
    lines = list(_notes(notes, max(room // 3, 1), "ellipsis"))
    running = [entry for state in ("running", "elsewhere") for entry in entries if entry.state == state]
    shown = _that_fit(len(running), room - len(lines))
    table = _bars(console.width, [(entry, progress.get(entry.directory)) for entry in running[:shown]])
    more = [_more(len(running) - shown)] if shown < len(running) else []
    counted = counts(entries, left)
    counted.no_wrap, counted.overflow = True, "ellipsis"
    return Group(counted, *([table] if shown else []), *more, *lines)


class _Title:
    """Text that gives way in its middle: both ends of a title, its arm and its seed, tell runs apart."""

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
        cells.append(Text(printable(progress.phase), no_wrap=True, overflow="ellipsis"))
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
        column.no_wrap = True  # what must shrink in a narrow terminal is the title, then the phase
    return table


def _cell(text: str) -> Text:
    return Text(text, no_wrap=True, justify="right")


def _notes(
    entries: Sequence[Entry], room: int, overflow: Literal["fold", "ellipsis"]
) -> Iterator[RenderableType]:
    shown = _that_fit(len(entries), room)
    for entry in entries[:shown]:
        yield Text(_note(entry), style=STYLES[entry.state], no_wrap=overflow == "ellipsis", overflow=overflow)
    if shown < len(entries):
        yield _more(len(entries) - shown)


def _that_fit(number: int, room: int) -> int:
    """How many of so many lines are shown: where not all fit, one is kept for telling how many are not."""
    return number if number <= room else max(room - 1, 0)


def _more(number: int) -> Text:
    return Text(f"... and {number} more", style="dim", no_wrap=True)


def _note(entry: Entry) -> str:
    return f"{entry.state}: {_title(entry)}" + (f": {printable(entry.note)}" if entry.note else "")


def _title(entry: Entry) -> str:
    return printable(entry.title) + (" (another command)" if entry.state == "elsewhere" else "")


def _percent(progress: Progress) -> str:
    return f"{int(progress.share * 100)} %"
