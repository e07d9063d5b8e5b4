"""The runs that a command would start, as a table in the terminal, and their sums."""

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
STATES = {  # of runs in the table, and in the line below it
    STARTS: "to start",
    "resumes": "to resume (counted in full)",
    "evaluates": "trained already, only to be evaluated again",
    "after trials": "to start with the rates that the trials choose",
    "finished": "finished already and used again",
    "copied": "to be copied from another study that has finished them",
    "running": "running in another command",
    "newer": "of a newer version of poslab, left as they are",
}
DONE = ("finished", "copied", "running", "newer")  # states of runs that take no device
NARROWEST = 16  # letters of a run's name in a line
LISTED = 3  # devices of a run that are named


@dataclass(kw_only=True)
class Planned(Placed):
    """A run of the command, a row of the table."""

    job: Job
    state: str
    cost: Cost
    later: bool  # it takes the weights of another row, and runs after all that do not

    @property
    def works(self) -> bool:
        """Whether the command has anything to do for it."""
        return self.state not in DONE

    @property
    def flops(self) -> float:
        """The operations that this takes."""
        return self.cost.evaluation if self.state == "evaluates" else self.cost.flops


def show_plan(rows: Sequence[Planned], machine: Machine, basis: str) -> None:
    """Print the table and its sums to standard output.

    `basis` is where the times come from, as the end of a sentence; empty where no time is known.
    """
    studies = ", ".join(dict.fromkeys(row.job.config.study for row in rows))
    print(f"{studies}: {counted(len(rows), 'run')} on {machine.name}; nothing is started")
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
    lines.append(f"To do: {tokens} tokens of training, {_operations(flops)} with all evaluation.")
    hours_of = "GPU-hours" if machine.cuda else "core-hours"
    if not basis:
        device = "GPU" if machine.cuda else "processor"
        where = (
            f"on this kind of {device}; plan=measure times four steps" if machine.local else f"on a {device}"
        )
        lines.append(f"How many {hours_of} that takes is not known: no run has finished {where}.")
        return lines
    shared_by = 1 if machine.places is None else machine.places.shared_by
    hours = number(sum(row.seconds * row.devices for row in working) / 3600 / shared_by, 3)
    end = max(row.end for row in working)
    until = f"; the last run ends after {rough_duration(end)}" if end else ""
    lines.append(f"About {hours} {hours_of}{until} (times {basis}).")
    if not end:
        lines.append("How many runs go at a time the cluster decides.")
    return lines


def _operations(flops: float) -> str:
    return f"{flops / 1e15:,.3g} PFLOP" if flops >= 1e15 else f"{quantity(flops)}FLOP"
