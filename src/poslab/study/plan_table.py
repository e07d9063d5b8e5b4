"""The terminal table of the runs that a command would start, and their totals."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from poslab.config.text import counted, one_line
from poslab.report.formatting import DASH, number, quantity
from poslab.report.render.terminal import needed, print_table, terminal_width
from poslab.study.cost import SHORTEST, Cost
from poslab.study.display.time_left import rough_duration
from poslab.study.launch.machine import size_text
from poslab.study.run.job import Job
from poslab.study.schedule import Machine, Placed

STATES = {  # the state of a run in the table: its words in the line below
    "starts": "to start",
    "resumes": "to resume (counted as whole runs)",
    "evaluates": "already trained, only to be evaluated again",
    "after trials": "to start once the trials have chosen their rates",
    "finished": "already finished, not repeated",
    "copied": "already finished in another study, to be copied from there",
    "running": "running in another command",
}
DONE = ("finished", "copied", "running")  # states of runs that need no device
NARROWEST = 16  # least width of the first column, in characters
LISTED = 3  # a run with more devices than this shows their number instead
UNITS = {"hours": 3600, "minutes": 60, "seconds": 1}  # of the total time; the largest that fits is used


@dataclass(kw_only=True)
class Planned(Placed):
    """A run of the command: a row of the table."""

    job: Job
    state: str
    cost: Cost
    later: bool  # it uses the weights of another row, and runs after all rows that do not

    @property
    def works(self) -> bool:
        """Whether the command has to train or evaluate this run."""
        return self.state not in DONE

    @property
    def flops(self) -> float:
        """The operations to do: those of the whole run, even if it resumes, or those of its evaluation."""
        return self.cost.evaluation if self.state == "evaluates" else self.cost.flops


def show_plan(rows: Sequence[Planned], machine: Machine, basis: str) -> None:
    """Print the table and its totals to standard output.

    `basis` says how the times were estimated, to follow the word "times"; it is empty if none is known.
    """
    studies = ", ".join(dict.fromkeys(row.job.config.study for row in rows))
    print(f"{studies}: {counted(len(rows), 'run')} on {machine.name}; this is a plan, nothing was started")
    table, shared = _table(rows, timed=bool(basis))
    print_table(table)
    for line in [*shared, *_sums(rows, machine, basis)]:
        print(textwrap.fill(line, terminal_width()))


def _table(rows: Sequence[Planned], timed: bool) -> tuple[Table, list[str]]:
    """Return the table of what differs between the runs, and a line with what several runs all share."""
    columns = {
        "para-\nmeters": [quantity(row.cost.parameters) for row in rows],
        "tokens": [quantity(row.cost.tokens) for row in rows],
        "memory": [size_text(row.memory) for row in rows],
        "time": [rough_duration(row.seconds) if timed and row.works else DASH for row in rows],
        "device": [_device(row.names) if row.names else DASH for row in rows],
        "wave": [str(row.wave) if row.names else DASH for row in rows],
    }
    runs = [one_line(row.job.request.title).split(" / ") for row in rows]
    shared = [part for part in runs[0][1:] if len(rows) > 1 and all(part in run[1:] for run in runs)]
    titles = [" / ".join([run[0], *(part for part in run[1:] if part not in shared)]) for run in runs]
    cells = [titles]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("run", overflow="fold")
    for title, column in columns.items():
        if len(rows) > 1 and len(set(column)) == 1 and column[0] != DASH:
            shared.append(f"{title} {column[0]}".replace("-\n", ""))
        elif set(column) != {DASH}:
            table.add_column(title, justify="right", no_wrap=True)
            cells.append(column)
    if len({row.state for row in rows}) > 1:
        table.add_column("state", no_wrap=True)
        cells.append([row.state for row in rows])
    for row in zip(*cells, strict=True):
        table.add_row(*map(Text, row))
    too_wide = needed(table) - terminal_width()
    table.columns[0].max_width = max(NARROWEST, max(map(len, titles)) - max(0, too_wide))
    return table, [f"The same in all runs: {', '.join(shared)}."] if shared else []


def _device(names: Sequence[str]) -> str:
    """Return `GPU 3`, `cores 0,1` or `8 GPUs`."""
    word = names[0].split(" ")[0]
    if len(names) > LISTED:
        return f"{len(names)} {word}s"
    numbers = ",".join(name.partition(" ")[2] for name in names)
    return f"{word}{'s' if len(names) > 1 else ''} {numbers}"


def _sums(rows: Sequence[Planned], machine: Machine, basis: str) -> list[str]:
    working = [row for row in rows if row.works]
    states = [row.state for row in rows]
    counts = [f"{states.count(state)} {words}" for state, words in STATES.items() if state in states]
    lines = [f"{counted(len(rows), 'run')}: {'; '.join(counts)}."]
    if not working:
        return lines
    tokens = quantity(sum(row.cost.tokens for row in working if row.state != "evaluates"))
    flops = sum(row.flops for row in working)
    lines.append(f"To do: {tokens} tokens of training, {_operations(flops)} including all evaluation.")
    unit = "GPU" if machine.cuda else "core"
    if not basis:
        device = "GPU" if machine.cuda else "processor"
        where = (
            f"on this kind of {device}; plan=measure times four steps" if machine.local else f"on a {device}"
        )
        timed = f"no run of {SHORTEST:g} seconds or more has finished {where}"
        lines.append(f"The number of {unit}-hours is not known: {timed}.")
        return lines
    shared_by = 1 if machine.places is None else machine.places.shared_by
    taken = _device_time(sum(row.seconds * row.devices for row in working) / shared_by, unit)
    end = max(row.end for row in working)
    until = f"; the last run ends after {rough_duration(end)}" if end else ""
    lines.append(f"About {taken}{until} (times {basis}).")
    if not end:
        lines.append("The cluster decides how many runs run at a time.")
    return lines


def _device_time(seconds: float, unit: str) -> str:
    """Return the time that all cores or GPUs take together: `21.5 core-seconds`, `2.81 GPU-hours`."""
    name, size = next((name, size) for name, size in UNITS.items() if seconds >= size or size == 1)
    return f"{number(seconds / size, 3)} {unit}-{name}"


def _operations(flops: float) -> str:
    return f"{flops / 1e15:,.3g} PFLOP" if flops >= 1e15 else f"{quantity(flops)}FLOP"
