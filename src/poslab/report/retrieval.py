"""What the trained models retrieve: the share of answers that are wholly right, by length and depth.

Perplexity alone is not length generalisation (Kazemnejad et al. 2023): a flat loss past L may come from the
last few tokens alone. A probe asks for something that stands at a given depth of the window.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from poslab.report.aggregate import ArmFigures
from poslab.report.charts import bars
from poslab.report.formatting import DASH, interval, listing, multiple, plain, share
from poslab.report.heat import HeatPanel, HeatPanels
from poslab.report.load import Run
from poslab.report.measures import Value
from poslab.report.results import Results
from poslab.report.section import Section
from poslab.report.sheets import figure
from poslab.report.statistics import Estimate, estimate
from poslab.report.sums_scheme import Retrieved
from poslab.report.tables import Cell, Column, Table

TASKS = {"passkey": "Pass-key", "copy": "Copy"}
LEARNED = 0.05  # of all samples at L, exact: with less, an arm has not learned the task
CHOICES = 10  # that an answer token has at least


@dataclass(frozen=True)
class TaskFigures:
    """One task: which lengths and depths were asked for, in any arm."""

    task: str
    title: str
    lengths: tuple[float, ...]  # multiples of L
    depths: tuple[float, ...]


def retrieval_section(results: Results) -> Section | None:
    """The section on retrieval, or None where no run was asked for a probe."""
    tasks = _tasks(results.finished)
    if not tasks:
        return None
    table = _table(results, tasks)
    by_run = [
        _run_row(item, run, key) for item in results.arms for run in item.arm.finished for key in run.probe
    ]
    return Section(
        "retrieval",
        "Retrieval",
        "What the trained model finds again: an answer that stands at a given depth of the window, asked for "
        "at its end. An answer is exact if every token of it was the most likely one. Lengths are those of "
        "the whole window; L is the training length.",
        _findings(results, tasks),
        tuple(_heat(results, task) for task in tasks if task.task in TASKS),
        (table,),
        {"retrieval": figure(by_run), table.name: figure(_arm_rows(results, tasks))},
    )


def _tasks(runs: Sequence[Run]) -> list[TaskFigures]:
    """The tasks on record, those with a figure first."""
    found = list(dict.fromkeys(task for run in runs for task, _, _ in run.probe))
    found.sort(key=lambda task: (list(TASKS).index(task) if task in TASKS else len(TASKS), task))
    return [
        TaskFigures(
            task,
            TASKS.get(task) or plain(task, 40) or "unnamed",
            tuple(sorted({length for run in runs for name, length, _ in run.probe if name == task})),
            tuple(sorted({depth for run in runs for name, _, depth in run.probe if name == task})),
        )
        for task in found
    ]


def _summed(run: Run, task: str, length: float) -> Retrieved | None:
    """One length over all depths."""
    parts = [one for (name, k, _), one in run.probe.items() if (name, k) == (task, length)]
    if not parts:
        return None
    return Retrieved(
        parts[0].length,
        sum(part.samples for part in parts),
        sum(part.exact for part in parts),
        sum(part.correct for part in parts),
        math.fsum(part.nll for part in parts),
        sum(part.tokens for part in parts),
    )


def _shares(one: Retrieved) -> dict[str, float | None]:
    """The figures of what was retrieved, by the names of their columns."""
    return {
        "exact_share": one.exact / one.samples,
        "token_share": one.correct / one.tokens,
        "nats_per_token": one.nll / one.tokens if math.isfinite(one.nll) else None,
    }


def _over_seeds(item: ArmFigures, task: str, length: float, column: str) -> Estimate | None:
    """A figure at one length over all depths."""
    found = [one for run in item.arm.finished if (one := _summed(run, task, length)) is not None]
    return estimate([value for one in found if (value := _shares(one)[column]) is not None])


def _heat(results: Results, task: TaskFigures) -> HeatPanels:
    panels, rows = [], []
    for i, item in enumerate(results.arms):
        cells = tuple(tuple(_cell(item, task, k, depth) for k in task.lengths) for depth in task.depths)
        if not any(cell for row in cells for cell in row):
            continue
        columns = tuple(multiple(k) for k in task.lengths)
        depths = tuple(f"{depth:g}" for depth in task.depths)
        panels.append(HeatPanel(i, item.arm.label, len(item.rows), depths, columns, cells))
        rows += _heat_rows(item, task, cells)
    return HeatPanels(
        f"retrieval_{task.task}",
        f"{task.title} retrieval by length and depth",
        f"Answers that are exact, in percent of the samples. Depth 0 is the start of the window, 1 right "
        f"before the question. {_asked(results, task)}{bars(results)}",
        "Depth",
        "Length of the window",
        "Percent of answers exact",
        0.0,
        1.0,
        True,
        tuple(panels),
        rows,
    )


def _cell(item: ArmFigures, task: TaskFigures, length: float, depth: float) -> Estimate | None:
    found = [run.probe.get((task.task, length, depth)) for run in item.arm.finished]
    return estimate([one.exact / one.samples for one in found if one is not None])


def _heat_rows(
    item: ArmFigures, task: TaskFigures, cells: Sequence[Sequence[Estimate | None]]
) -> list[dict[str, Value]]:
    rows: list[dict[str, Value]] = []
    for depth, found in zip(task.depths, cells, strict=True):
        for length, cell in zip(task.lengths, found, strict=True):
            if cell is None:
                continue
            parts = _parts(item.arm.finished, task, length, depth)
            row: dict[str, Value] = {"arm": item.arm.label, "task": task.title, "multiple": length}
            row |= {"length": parts[0].length, "depth": depth, "n": cell.n, "mean": cell.mean}
            row |= {"half_width": cell.half_width, "lowest": cell.lowest, "highest": cell.highest}
            answer = min(part.tokens // part.samples for part in parts)
            samples = min(part.samples for part in parts)
            rows.append(
                row | {"samples": samples, "answer_tokens": answer, "chance_at_most": CHOICES**-answer}
            )
    return rows


def _parts(
    runs: Iterable[Run], task: TaskFigures, length: float | None = None, depth: float | None = None
) -> list[Retrieved]:
    """What was retrieved of a task, at one length and depth or at all."""
    return [
        one
        for run in runs
        for (name, k, at), one in run.probe.items()
        if name == task.task and length in (None, k) and depth in (None, at)
    ]


def _asked(results: Results, task: TaskFigures) -> str:
    """How many samples there are, and what guessing would find."""
    parts = _parts(results.finished, task)
    samples = sorted({part.samples for part in parts})
    answer = min(part.tokens // part.samples for part in parts)
    some = " to ".join(str(n) for n in dict.fromkeys([samples[0], samples[-1]]))
    return (
        f"{some} {'sample' if samples[-1] == 1 else 'samples'} a cell and seed. An answer has {answer} "
        f"{'token' if answer == 1 else 'tokens'}: guessed, each among {CHOICES} or more, it is exact with a "
        f"chance of {CHOICES**-answer:g} at most. "
    )


def _table(results: Results, tasks: Sequence[TaskFigures]) -> Table:
    lengths = sorted({k for task in tasks for k in task.lengths})
    columns = [Column("Task", number=False), Column("Arm", number=False)]
    columns += [Column(multiple(k), "Exact, percent") for k in lengths]
    columns += [Column(multiple(k), "Answer, nats per token") for k in lengths]
    rows = [
        (
            Cell(task.title),
            Cell(item.arm.label, arm=i),
            *(Cell(_text(item, task.task, k, "exact_share")) for k in lengths),
            *(Cell(_text(item, task.task, k, "nats_per_token")) for k in lengths),
        )
        for task in tasks
        for i, item in enumerate(results.arms)
        if any(name == task.task for run in item.arm.finished for name, _, _ in run.probe)
    ]
    caption = (
        "Over all depths. Nats per token is the loss on the answer alone, which moves before an answer "
        "becomes exact. A dash: the scheme is not defined at that length, or it was not measured."
    )
    return Table(
        "retrieval_arms",
        "By task and arm",
        caption,
        tuple(columns),
        tuple(rows),
        "retrieval_arms.csv",
        grouped=True,
        by_run="retrieval.csv",
    )


def _text(item: ArmFigures, task: str, length: float, column: str) -> str:
    found = _over_seeds(item, task, length, column)
    if found is None:
        return DASH
    fewer = f" (n = {found.n})" if found.n < len(item.rows) else ""
    shown = share if column == "exact_share" else interval
    return shown(found.mean, found.half_width) + fewer


def _findings(results: Results, tasks: Sequence[TaskFigures]) -> tuple[str, ...]:
    said = [_finding(results, task) for task in tasks]
    without = [
        f"{item.arm.label} ({task.title.lower()})"
        for task in tasks
        for item in results.arms
        if item.rows and not _parts(item.arm.finished, task)
    ]
    if without:
        said.append(f"Not on record: {listing(without)}.")
    said.append(
        "One seed: no interval, no winner claimed."
        if results.seeds < 2
        else "Descriptive: no difference between arms is tested."
    )
    return tuple(said)


def _finding(results: Results, task: TaskFigures) -> str:
    """Who learned the task at L, and what is left of it at the longest length."""
    found = [
        (item, at.mean)
        for item in results.arms
        if (at := _over_seeds(item, task.task, 1.0, "exact_share")) is not None
    ]
    limit = f"{100 * LEARNED:g} %"
    if not found:
        return f"{task.title}: not measured at L, so what happens past L says nothing."
    learned = [(item, mean) for item, mean in found if mean >= LEARNED]
    if not learned:
        return (
            f"{task.title}: no arm learned the task at L (less than {limit} exact), so what happens past L "
            "says nothing."
        )
    longest = task.lengths[-1]
    parts = [f"{task.title}, percent exact at L" + (f" and at {multiple(longest)}" if longest > 1 else "")]
    at_both = [f"{item.arm.label} {share(mean)}{_then(item, task)}" for item, mean in learned]
    parts[0] += f": {listing(at_both)}."
    rest = [item.arm.label for item, mean in found if mean < LEARNED]
    if rest:
        parts.append(
            f"Not learned at L (less than {limit} exact): {listing(rest)}; past L, "
            f"{'its figures say' if len(rest) == 1 else 'their figures say'} nothing."
        )
    return " ".join(parts)


def _then(item: ArmFigures, task: TaskFigures) -> str:
    if task.lengths[-1] <= 1:
        return ""
    at = _over_seeds(item, task.task, task.lengths[-1], "exact_share")
    return f" and {share(at.mean) if at is not None else 'not defined'}"


def _run_row(item: ArmFigures, run: Run, key: tuple[str, float, float]) -> dict[str, Value]:
    """A row of retrieval.csv: a run's answers to one task at one length and depth."""
    task, length, depth = key
    one = run.probe[key]
    return {
        "arm": item.arm.label,
        "run": run.name,
        "seed": run.seed,
        "task": plain(task, 40),
        "multiple": length,
        "length": one.length,
        "depth": depth,
        "samples": one.samples,
        "exact": one.exact,
        "correct": one.correct,
        "tokens": one.tokens,
        "nll": one.nll,
        **_shares(one),
    }


def _arm_rows(results: Results, tasks: Sequence[TaskFigures]) -> list[dict[str, Value]]:
    """retrieval_arms.csv: a row an arm, task and length, over all depths and seeds."""
    rows: list[dict[str, Value]] = []
    for task in tasks:
        for item in results.arms:
            for length in task.lengths:
                columns = {
                    column: _over_seeds(item, task.task, length, column)
                    for column in ("exact_share", "token_share", "nats_per_token")
                }
                if columns["exact_share"] is None:
                    continue
                row: dict[str, Value] = {"task": task.title, "arm": item.arm.label, "multiple": length}
                row["seeds_finished"] = len(item.rows)
                for column, at in columns.items():
                    row |= {f"{column}_n": at.n if at else 0, f"{column}_mean": at.mean if at else None}
                    row[f"{column}_half_width"] = at.half_width if at else None
                rows.append(row)
    return rows
