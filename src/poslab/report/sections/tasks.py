"""Tasks in a report: which arms still solve a task, at how many times the longest training size."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

from scipy.stats import wilcoxon

from poslab.analysis.curves import Point
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.palette import head_number
from poslab.analysis.sheets import Row, Rows, sheet
from poslab.analysis.statistics import EXPLORATORY, estimate, grouped
from poslab.config.text import listing, plain
from poslab.measures.task import LEARNED, Task, wilson
from poslab.record.frames import frame
from poslab.record.measures import Value
from poslab.record.reader import Run
from poslab.report.cells import Show, fewer, figure, lone_arm, looks, named, probability, words
from poslab.report.charts import LineChart, PanelChart, Series, octaves
from poslab.report.document import Section
from poslab.report.formatting import DASH, count, number, share
from poslab.report.study_tables import StudyTables, over_seeds
from poslab.report.tables import Cell, Column, Table

Tasks = dict[str, list[ArmFigures]]  # the arms with finished runs, by task
LEARNERS = "seeds with 95 % exact answers"
SOLVED = "A run that solves the longest tested size counts with that size."
BESIDE_A_TASK = {"offset", "samples", "tested"}  # settings that do not change the samples of a task


def sentences(study: StudyTables) -> Iterable[str]:
    """Yield how many runs of each arm learned their task, if several, then who still solves each task."""
    tasks = _arms(study)
    if len(tasks) > 1:
        shares = [f"{row['name']} {row['learned']} of {row['runs']}" for row in _schemes(study, tasks)]
        yield f"Runs that learned their task, over {len(tasks)} tasks: {listing(shares, 8)}."
    defined = next((task for task, items in tasks.items() if any(map(reached, items))), None)
    for task, items in tasks.items():
        meaning = " Solved: at least half of the answers are exact." if task == defined else ""
        yield f"{_sentence(task, items)}{meaning}"


def lead(study: StudyTables) -> tuple[LineChart | PanelChart, Table] | None:
    """Return the first figure and table of a report; with several tasks, they are side by side."""
    tasks = _arms(study)
    if not tasks:
        return None
    if len(tasks) > 1:
        return _panels(study, tasks), _by_task(study, tasks)
    return _chart(study, tasks, next(iter(tasks))), _table(study, tasks)


def section(study: StudyTables) -> Section | None:
    """Return the tasks seed by seed, or None in a study without tasks."""
    tasks, table = _arms(study), study.table(Task())
    if not tasks or table is None:
        return None
    low, high = zip(*map(wilson, table.exact, table.samples), strict=True)
    by_run = table.assign(exact_share=table.exact / table.samples, wilson_low=low, wilson_high=high)
    several = len(tasks) > 1
    sheets = {"task_arms": sheet(_rows(study, tasks)), "task": sheet(study.records(by_run))}
    if several:
        sheets |= {"task_schemes": sheet(_schemes(study, tasks))}
    return Section(
        "task",
        "Tasks",
        "An answer is exact if each of its tokens is the most likely one. Test samples are new to the model "
        "and the same for every run. L50 is the largest multiple of the longest training size up to which at "
        "least half of a run's answers are exact. Only runs that learned the task have an L50: those with "
        f"{100 * LEARNED:g} % exact answers at the longest training size.",
        (),
        tuple(_by_seed(study, tasks, task) for task in tasks),
        (_table(study, tasks),) if several else (),
        sheets,
    )


def _arms(study: StudyTables) -> Tasks:
    """Return the arms with finished runs by task: its kind, numbered if its samples differ in settings."""
    found = grouped(
        ((run.objective, _drawn_by(run)), item)
        for item in study.results.arms
        for run in item.arm.finished[:1]
        if "task.csv" in run.tables
    )
    kinds = [kind for kind, _ in found]
    tasks: Tasks = {}
    for place, (kind, items) in enumerate(zip(kinds, found.values(), strict=True), 1):
        number = f"_{kinds[:place].count(kind)}" if kinds.count(kind) > 1 else ""
        tasks[f"{plain(kind, 60)}{number}"] = items
    return tasks


def _drawn_by(run: Run) -> str:
    options = run.config["objective"].items()
    return json.dumps({key: value for key, value in options if key not in BESIDE_A_TASK}, sort_keys=True)


def _title(task: str) -> str:
    return task.rpartition(".")[2].replace("_", " ").capitalize()


def _name(item: ArmFigures, task: str) -> str:
    """Return the name of an arm among the arms of its task, without the task."""
    return item.arm.label.replace(f" {task}", "", 1)


def _longest(items: Sequence[ArmFigures]) -> int:
    return int(items[0].arm.finished[0].config["objective"]["longest"])


def _learned(item: ArmFigures) -> int:
    """Return the number of runs that learned the task."""
    return len(item.by_seed("task_l50"))


def reached(item: ArmFigures) -> dict[int, float]:
    """Return L50 by seed for the runs that learned the task; {} if no larger size was tested.

    Otherwise, a scheme that is undefined past the training length would have an L50 of 1 unmeasured.
    """
    table = frame(item.arm.finished[:1], Task.table)
    past = table is not None and table["size"].max() > _longest([item])
    return item.by_seed("task_l50") if past else {}


def _sentence(task: str, items: Sequence[ArmFigures]) -> str:
    """Return which arms still solve a task, at how many times the longest training size.

    Arms with the most runs that learned the task come first: L50 covers only such runs and ranks no arms.
    """

    def solved(item: ArmFigures) -> tuple[str, str]:
        learned, values, name = _learned(item), reached(item).values(), lone_arm(_name(item, task))
        if not learned:
            return f"no seed reaches {100 * LEARNED:g} % exact answers at that size", name
        label = name if learned == len(item.rows) else f"{name} ({learned} of {len(item.rows)} seeds)"
        if not values:
            return "not tested past that size", label
        return f"solved up to {fmean(values):.2f} times that size", label

    by_words = grouped(map(solved, sorted(items, key=_learned, reverse=True)))
    parts = [f"{words} with {listing(names, 8)}" for words, names in by_words.items()]
    tested = max(int(run.config["objective"]["tested"]) for item in items for run in item.arm.finished[:1])
    sizes = f"tested on sizes up to {tested} and trained on sizes up to {_longest(items)}"
    return f"{_title(task)}, {sizes}: {'; '.join(parts)}."


def _rows(study: StudyTables, tasks: Tasks) -> list[dict[str, Any]]:
    """Return the rows of task_arms.csv: one per task and arm."""
    rows = []
    for task, items in tasks.items():
        reference = _reference(study, task, items)
        base = reached(reference)
        for item in items:
            values = reached(item)
            gaps = [values[seed] - base[seed] for seed in sorted(values.keys() & base.keys())]
            is_tested = item is not reference and len(gaps) >= EXPLORATORY and any(gaps)
            shares = {name: item.by_seed(name) for name in ("task_exact", "task_tokens", "task_exact_2x")}
            row = {
                "task": task,
                "arm": item.arm.label,
                "name": _name(item, task),
                "attention": item.arm.attention,
                "seeds_finished": len(item.rows),
                "seeds_learned": _learned(item),
            }
            for name, by_seed in {**shares, "task_l50": values}.items():
                row |= _over_seeds(name, by_seed)
            row |= {"reference": _name(reference, task), "shared_seeds": len(gaps)}
            p = float(wilcoxon(gaps, zero_method="zsplit").pvalue) if is_tested else None
            rows.append({**row, "p_wilcoxon": p})
    return rows


def _over_seeds(name: str, by_seed: Mapping[int, float]) -> dict[str, Value]:
    """Return the mean of a figure and its range over the seeds.

    Shares lie between 0 and 1, and L50 takes steps, so a t interval could leave their range or be 0.
    """
    found = estimate(list(by_seed.values()))
    ends = {end: None if found is None else found.row[end] for end in ("mean", "lowest", "highest")}
    return {f"{name}_n": len(by_seed), **{f"{name}_{end}": value for end, value in ends.items()}}


def _range(show: Callable[[float | None], str]) -> Show:
    """Return a function that makes cells of means, with their range over the seeds if seeds differ."""

    def cell(row: Row, key: str) -> Cell:
        mean = figure(row, f"{key}_mean")
        low, high = (show(figure(row, f"{key}_{end}")) for end in ("lowest", "highest"))
        over = "" if low == high else f", {low} to {high}"
        return Cell(DASH) if mean is None else Cell(f"{show(mean)}{over}{fewer(row, key)}", mean)

    return cell


L50, PERCENT = _range(partial(number, digits=3)), _range(share)


def _reference(study: StudyTables, task: str, items: Sequence[ArmFigures]) -> ArmFigures:
    """Return the study's reference, or the arm with the same name in this task, or the first arm."""
    first = study.results.reference
    if first in items:
        return first
    called = _name(first, plain(first.arm.runs[0].objective, 60))
    return next((item for item in items if _name(item, task) == called), items[0])


def _looks(study: StudyTables, tasks: Tasks) -> dict[str, int]:
    """Return the number of each arm's look, by the arm's name within its task."""
    numbers, found = looks(study.results), dict[str, int]()
    for task, items in tasks.items():
        for item in items:
            found.setdefault(_name(item, task), numbers[item.arm.label])
    return found


def _of(total: str) -> Show:
    """Return a function that makes cells such as "3 of 8", a count out of the row's `total`."""
    return lambda row, key: Cell(f"{row[key]} of {row[total]}")


def _table(study: StudyTables, tasks: Tasks) -> Table:
    """Return the table of L50 and exact answers, with one row per task and arm."""
    rows = _rows(study, tasks)
    columns = (
        words("task", "Task"),
        named(_looks(study, tasks), "name"),
        Column("seeds_learned", "Learned", _of("seeds_finished"), number=False, about=LEARNERS),
        Column("task_exact", "Exact, %", PERCENT, about="at the longest training size"),
        Column("task_exact_2x", "At twice, %", PERCENT, about="at twice the longest training size"),
        Column("task_l50", "L50", L50, about="in multiples of the longest training size"),
        Column("p_wilcoxon", "p", probability, about="for L50 against the reference"),
    )
    caption = (
        "Learned: seeds with 95 % exact answers at the longest training size. Exact answers at that size and "
        "at twice that size are means over all seeds; L50, in multiples of that size, is a mean over the "
        f"seeds that learned the task. Each mean is followed by its range over the seeds. {SOLVED} A "
        f"dash: not tested there, or no seed learned the task. p compares L50 with {rows[0]['reference']} "
        f"by Wilcoxon's signed-rank test, with {EXPLORATORY} or more shared seeds, not corrected."
    )
    title = "Tasks, arm by arm" if len(tasks) > 1 else "Answer"
    return Table(title, caption, columns, rows, ("task_arms.csv", "task.csv"), grouped=True)


def _schemes(study: StudyTables, tasks: Tasks) -> Rows:
    """Return the rows of task_schemes.csv: one per arm name, with the tasks side by side."""
    by_name = grouped((row["name"], row) for row in _rows(study, tasks))
    return [
        {
            "name": name,
            "attention": of_name[0]["attention"],
            "learned": sum(row["seeds_learned"] for row in of_name),
            "runs": sum(row["seeds_finished"] for row in of_name),
            **{
                f"{row['task']}_{key.removeprefix('task_')}": row[key]
                for row in of_name
                for key in ("seeds_learned", "seeds_finished", *(key for key in row if "_l50" in key))
            },
        }
        for name, of_name in by_name.items()
    ]


def _by_task(study: StudyTables, tasks: Tasks) -> Table:
    """Return the table of L50 by arm, with one column per task."""

    def solved(row: Row, key: str) -> Cell:
        learned, runs = (row.get(key.replace("_l50", f"_seeds_{end}")) for end in ("learned", "finished"))
        if not runs:
            return Cell(DASH)
        cell, seeds = L50(row, key), f"{learned} of {runs}"
        return Cell(f"{cell.text} ({seeds})" if learned else f"not learned ({seeds})", cell.value)

    columns = (
        named(_looks(study, tasks), "name"),
        Column("learned", "Learned", _of("runs"), number=False, about="runs that learned their task"),
        *(
            Column(
                f"{task}_l50",
                f"{_title(task)}, to {_longest(items)}",
                solved,
                "L50 in multiples of the longest training size",
            )
            for task, items in tasks.items()
        ),
    )
    caption = (
        "L50: the largest multiple of the longest training size (given after the task) up to which at least "
        "half of the answers are exact, as the mean over the seeds that learned the task, then their range. "
        f"In brackets: the seeds that learned it, with {100 * LEARNED:g} % exact answers at the longest "
        "training size. A dash: a scheme that is undefined past the training length is not tested there. "
        f"{SOLVED} L50 does not rank arms, because it omits runs that did not learn."
    )
    rows = _schemes(study, tasks)
    return Table("Answer", caption, columns, rows, ("task_schemes.csv", "task.csv"))


def _exact(runs: Sequence[Run]) -> tuple[Point, ...]:
    """Return the share of exact answers by size, as means over some runs."""
    table = frame(runs, Task.table)
    assert table is not None
    means = over_seeds(table.assign(share=table.exact / table.samples), "share", axis="size")
    return tuple(replace(point, half_width=None) for point in means)


def _chart(study: StudyTables, tasks: Tasks, task: str) -> LineChart:
    """Return exact answers by size as means over the seeds, in the colours of the arms in all `tasks`."""
    items, looks = tasks[task], _looks(study, tasks)
    names = [_name(item, task) for item in items]
    series = tuple(
        Series(looks[name], name, _exact(item.arm.finished)) for name, item in zip(names, items, strict=True)
    )
    return LineChart(
        f"task_{task}",
        f"{_title(task)}: exact answers by size",
        "The share of test samples with an exact answer. The mark is the longest training size. "
        "Means over seeds; another figure has a line for each seed.",
        "Size of the sample",
        "Share of exact answers",
        series,
        octaves(series, count),
        float(_longest(items)),
        frame=(0.0, 1.0),
        mark_label="trained up to here",
    )


def _panels(study: StudyTables, tasks: Tasks) -> PanelChart:
    """Return exact answers by size, with one panel per task."""
    drawn = [(task, _chart(study, tasks, task)) for task in tasks]
    panels = tuple(replace(chart, title=_title(task), mark_label="") for task, chart in drawn)
    rows: Rows = [{"task": task, **row} for task, chart in drawn for row in chart.rows]
    title = "Exact answers by size, task by task"
    return PanelChart("tasks", title, drawn[0][1].caption, panels, "Arms", rows)


def _by_seed(study: StudyTables, tasks: Tasks, task: str) -> PanelChart:
    """Return exact answers by size, a panel per arm and a line per seed: means hide which seeds learn."""
    items, whole = tasks[task], _chart(study, tasks, task)
    panels = []
    seeds = sorted({run.seed for item in items for run in item.arm.finished})
    for item, line in zip(items, whole.series, strict=True):
        lines = tuple(
            Series(head_number(seeds.index(run.seed)), f"seed {run.seed}", _exact([run]))
            for run in item.arm.finished
        )
        panels.append(replace(whole, title=line.label, series=lines))
    rows = [
        {"arm": panel.title, "line": line.label, **point.row}
        for panel in panels
        for line in panel.series
        for point in line.points
    ]
    return PanelChart(
        f"{whole.name}_seeds",
        f"{whole.title}, each seed",
        "The share of exact answers with one line per seed. The mark is the longest training size.",
        tuple(panels),
        "Seeds",
        rows,
    )
