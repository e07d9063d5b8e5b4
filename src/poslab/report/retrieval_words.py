"""What was retrieved as a section of the report: a table, and words that claim no more than it."""

import math
from collections.abc import Sequence

from poslab.config.text import listing
from poslab.report.analysis.estimates import ArmFigures
from poslab.report.analysis.results import Results
from poslab.report.cells import fewer
from poslab.report.formatting import DASH, interval, multiple, number, share
from poslab.report.retrieval import (
    SYMBOLS,
    TASKS,
    TaskFigures,
    arms_sheet,
    over_seeds,
    parts_of,
    retrieval_heat,
    runs_sheet,
    tasks_of,
    training_share,
)
from poslab.report.section import Section
from poslab.report.sheets import figure
from poslab.report.tables import Cell, Column, Table

LEARNED = 0.05  # of all samples at L, exact: with less, an arm has not learned the task


def retrieval_section(results: Results) -> Section | None:
    """The section on retrieval, or None where no run was asked for a probe."""
    tasks = tasks_of(results.finished)
    if not tasks:
        return None
    table = _table(results, tasks)
    return Section(
        "retrieval",
        "Retrieval",
        "What the trained model finds again: an answer that stands at a given depth of the window, asked for "
        "at its end. An answer is exact if every token of it was the most likely one. Lengths are those of "
        f"the whole window; L is the training length.{_trained_on(results)}",
        _findings(results, tasks),
        tuple(retrieval_heat(results, task) for task in tasks if task.task in TASKS),
        (table,),
        {"retrieval": figure(runs_sheet(results)), table.name: figure(arms_sheet(results, tasks))},
    )


def _trained_on(results: Results) -> str:
    found = {training_share(run) for run in results.finished if run.probe}
    part = found.pop() if len(found) == 1 else None
    return "" if part is None else f" {100 * part:g} % of the training windows held such questions."


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
        f"becomes exact{_guessing(tasks)}. A dash: the scheme is not defined at that length, or it was not "
        "measured."
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


def _guessing(tasks: Sequence[TaskFigures]) -> str:
    said = [
        f"{number(math.log(SYMBOLS[task.task]))} ({task.title.lower()})"
        for task in tasks
        if task.task in SYMBOLS
    ]
    return f"; guessing among the symbols of the answer loses {listing(said)}" if said else ""


def _text(item: ArmFigures, task: str, length: float, column: str) -> str:
    found = over_seeds(item, task, length, column)
    if found is None:
        return DASH
    shown = share if column == "exact_share" else interval
    return shown(found.mean, found.half_width) + fewer(found.n, item)


def _findings(results: Results, tasks: Sequence[TaskFigures]) -> tuple[str, ...]:
    said = [_finding(results, task) for task in tasks]
    without = [
        f"{item.arm.label} ({task.title.lower()})"
        for task in tasks
        for item in results.arms
        if item.rows and not parts_of(item.arm.finished, task)
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
        if (at := over_seeds(item, task.task, 1.0, "exact_share")) is not None
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
    at_both = [f"{item.arm.label} ({share(mean)}{_then(item, task)})" for item, mean in learned]
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
    at = over_seeds(item, task.task, task.lengths[-1], "exact_share")
    return f" and {share(at.mean) if at is not None else 'not defined'}"
