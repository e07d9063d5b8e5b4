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
from poslab.study.cost import Cost
from poslab.study.display.time_left import rough_duration
from poslab.study.launch.machine import size_text
from poslab.study.run.job import Job
from poslab.study.schedule import Machine, Placed

STARTS = "starts"
STATES = {  # the state of a run in the table: its words in the line below
    STARTS: "to start",
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
    print_table(_table(rows, timed=bool(basis)))
    for line in _sums(rows, machine, basis):
        print(textwrap.fill(line, terminal_width()))


def _table(rows: Sequence[Planned], timed: bool) -> Table:
    placed = any(row.names for row in rows)
    stated = any(row.state != STARTS for row in rows)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("run", overflow="fold")
    for title in ("para-\nmeters", "tokens", "memory", *(("time",) if timed else ())):
        table.add_column(title, justify="right", no_wrap=True)
    for title in (*(("device", "wave") if placed else ()), *(("state",) if stated else ())):
        table.add_column(title, no_wrap=True)
    for row in rows:
        cells = [
            one_line(row.job.request.title),
            quantity(row.cost.parameters),
            quantity(row.cost.tokens),
            size_text(row.memory),
        ]
        if timed:
            cells.append(rough_duration(row.seconds) if row.works else DASH)
        if placed:
            cells += [_device(row.names), str(row.wave)] if row.names else [DASH, DASH]
        table.add_row(*map(Text, [*cells, *([row.state] if stated else [])]))
    too_wide = needed(table) - terminal_width()
    longest = max(len(row.job.request.title) for row in rows)
    table.columns[0].max_width = max(NARROWEST, longest - max(0, too_wide))
    return table


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
        lines.append(f"The number of {unit}-hours is not known: no run has finished {where}.")
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
