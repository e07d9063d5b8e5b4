"""What the trained models retrieve: the share of answers that are wholly right, by length and depth.

Perplexity alone is not length generalisation (Kazemnejad et al. 2023): a flat loss past L may come from the
last few tokens alone. A probe asks for something that stands at a given depth of the window.
"""

import math
from collections.abc import Sequence

from poslab.analysis import retrieval
from poslab.analysis.estimates import ESTIMATE, ArmFigures
from poslab.analysis.results import Results
from poslab.analysis.retrieval import SYMBOLS, TASKS
from poslab.analysis.sheets import sheet
from poslab.analysis.statistics import Estimate
from poslab.config.text import listing
from poslab.record.measures import Value, name
from poslab.report.cells import arms, half_widths, heat_panel, looks, loss, named, percent, span, words
from poslab.report.charts import SCALE_FROM, HeatPanels
from poslab.report.document import Section
from poslab.report.formatting import multiple, number, share
from poslab.report.tables import Column, Table

LEARNED = 0.05  # of all samples at L, exact: with less, an arm has not learned the task

SHOWN = ("exact_share", "nats_per_token")  # of the figures, in the table
WINDOW_START, BEFORE_QUESTION = 0.0, 1.0  # depths
EVERY_ANSWER = 1.0  # where the scale ends


def section(results: Results) -> Section | None:
    """What was retrieved, or None where no run had a probe."""
    tasks = retrieval.tasks_of(results.finished)
    if not tasks:
        return None
    parts = {retrieval.training_share(run) for run in results.finished if run.probe}
    part = parts.pop() if len(parts) == 1 else None
    trained_on = "" if part is None else f" {100 * part:g} % of the training windows held such questions."
    return Section(
        "retrieval",
        "Retrieval",
        "What the trained model finds again: an answer that stands at a given depth of the window, asked for "
        "at its end. An answer is exact if every token of it was the most likely one. Lengths are those of "
        f"the whole window; L is the training length.{trained_on}",
        _findings(results, tasks),
        tuple(_heat(results, task) for task in tasks if task.task in TASKS),
        (_table(results, tasks),),
        {
            "retrieval": sheet(retrieval.run_rows(results)),
            "retrieval_arms": sheet(retrieval.arm_rows(results, tasks)),
        },
    )


def _table(results: Results, tasks: Sequence[retrieval.TaskFigures]) -> Table:
    """A row a task and arm, with the rows of retrieval_arms.csv on its lengths beside each other."""
    lengths = sorted({k for task in tasks for k in task.lengths})
    columns = (
        words("task", "Task"),
        named(looks(results)),
        *(Column(f"exact_share_{name(k)}", multiple(k), percent, "Exact, percent") for k in lengths),
        *(Column(f"nats_per_token_{name(k)}", multiple(k), loss, "Answer, nats per token") for k in lengths),
    )
    records: dict[tuple[str, str], dict[str, Value]] = {
        (task.title, item.arm.label): {"task": task.title, "arm": item.arm.label}
        for task in tasks
        for item in results.arms
        if retrieval.parts_of(item.arm.finished, task)
    }
    for row in retrieval.arm_rows(results, tasks):
        record, k = records[str(row["task"]), str(row["arm"])], row["multiple"]
        assert isinstance(k, float)
        record |= {f"{key}_{name(k)}_{end}": row[f"{key}_{end}"] for key in SHOWN for end in ESTIMATE}
        record["seeds_finished"] = row["seeds_finished"]
    caption = (
        "Over all depths. Nats per token is the loss on the answer alone, which moves before an answer "
        f"becomes exact{_guessing(tasks)}. A dash: the scheme is not defined at that length, or it was not "
        "measured."
    )
    sources = "retrieval_arms.csv", "retrieval.csv"
    return Table("By task and arm", caption, columns, list(records.values()), sources, grouped=True)


def _guessing(tasks: Sequence[retrieval.TaskFigures]) -> str:
    known = [task for task in tasks if task.task in SYMBOLS]
    losses = [f"{number(math.log(SYMBOLS[task.task]))} ({task.title.lower()})" for task in known]
    return f"; guessing among the symbols of the answer loses {listing(losses)}" if losses else ""


def _heat(results: Results, task: retrieval.TaskFigures) -> HeatPanels:
    panels, rows = [], []
    for i, item in arms(results):
        cells = {
            (depth, k): retrieval.exact_share(item, task, k, depth)
            for depth in task.depths
            for k in task.lengths
        }
        if any(cells.values()):
            panels.append(heat_panel(i, item, cells, "{:g}".format, multiple))
            rows += [_heat_row(item, task, *place, cell) for place, cell in cells.items() if cell]
    return HeatPanels(
        f"retrieval_{task.task}",
        f"{task.title} retrieval by length and depth",
        f"Answers that are exact, in percent of the samples. Depth {WINDOW_START:g} is the start of the "
        f"window, {BEFORE_QUESTION:g} right before the question. {_samples(results, task)}"
        f"{half_widths(results)}",
        "Depth",
        "Length of the window",
        "Percent of answers exact",
        SCALE_FROM,
        EVERY_ANSWER,
        True,
        tuple(panels),
        rows,
    )


def _heat_row(
    item: ArmFigures, task: retrieval.TaskFigures, depth: float, length: float, cell: Estimate
) -> dict[str, Value]:
    parts = retrieval.parts_of(item.arm.finished, task, length, depth)
    answer = min(part.tokens // part.samples for part in parts)
    return {
        "arm": item.arm.label,
        "task": task.title,
        "multiple": length,
        "length": parts[0].length,
        "depth": depth,
        **cell.row,
        "samples": min(part.samples for part in parts),
        "answer_tokens": answer,
        "chance": SYMBOLS[task.task] ** -answer,
    }


def _samples(results: Results, task: retrieval.TaskFigures) -> str:
    """How many samples there are, and what guessing would find."""
    parts = retrieval.parts_of(results.finished, task)
    samples = sorted({part.samples for part in parts})
    answer = min(part.tokens // part.samples for part in parts)
    unit = "sample" if samples[-1] == 1 else "samples"
    return (
        f"{span(samples)} {unit} a cell and seed. An answer has {answer} "
        f"{'token' if answer == 1 else 'tokens'}: guessed, each among {SYMBOLS[task.task]} symbols, it is "
        f"exact with a chance of {SYMBOLS[task.task] ** -answer:.2g}. "
    )


def _findings(results: Results, tasks: Sequence[retrieval.TaskFigures]) -> tuple[str, ...]:
    without = [
        f"{item.arm.label} ({task.title.lower()})"
        for task in tasks
        for item in results.arms
        if item.rows and not retrieval.parts_of(item.arm.finished, task)
    ]
    missing = [f"Not on record: {listing(without)}."] if without else []
    one_seed = "One seed: no interval, no winner claimed."
    sure = one_seed if results.seeds < 2 else "Descriptive: no difference between arms is tested."
    return (*(_finding(results, task) for task in tasks), *missing, sure)


def _finding(results: Results, task: retrieval.TaskFigures) -> str:
    """Who learned the task at L, and what is left of it at the longest length."""
    at_length = [
        (item, at.mean)
        for item in results.arms
        if (at := retrieval.over_seeds(item, task.task, 1.0).get("exact_share"))
    ]
    limit = f"{100 * LEARNED:g} %"
    if not at_length:
        return f"{task.title}: not measured at L, so what happens past L says nothing."
    learned = [(item, mean) for item, mean in at_length if mean >= LEARNED]
    if not learned:
        none = f"{task.title}: no arm learned the task at L (less than {limit} exact)"
        return f"{none}, so what happens past L says nothing."
    longest = task.lengths[-1]
    at_both = [f"{item.arm.label} ({share(mean)}{_then(item, task)})" for item, mean in learned]
    past = f" and at {multiple(longest)}" if longest > 1 else ""
    words = f"{task.title}, percent exact at L{past}: {listing(at_both)}."
    rest = [item.arm.label for item, mean in at_length if mean < LEARNED]
    if not rest:
        return words
    whose = "its figures say" if len(rest) == 1 else "their figures say"
    return f"{words} Not learned at L (less than {limit} exact): {listing(rest)}; past L, {whose} nothing."


def _then(item: ArmFigures, task: retrieval.TaskFigures) -> str:
    if task.lengths[-1] <= 1:
        return ""
    at = retrieval.over_seeds(item, task.task, task.lengths[-1]).get("exact_share")
    return f" and {share(at.mean) if at is not None else 'not defined'}"
