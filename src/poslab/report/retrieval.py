"""What the trained models retrieve: the share of answers that are wholly right, by length and depth.

Perplexity alone is not length generalisation (Kazemnejad et al. 2023): a flat loss past L may come from the
last few tokens alone. A probe asks for something that stands at a given depth of the window.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from poslab.config.text import plain
from poslab.data.questions import TASKS as ASKED
from poslab.record.measures import Value
from poslab.record.reader import Run
from poslab.record.scheme import Retrieved
from poslab.report.analysis.estimates import ArmFigures
from poslab.report.analysis.results import Results
from poslab.report.analysis.statistics import Estimate, estimate
from poslab.report.formatting import multiple
from poslab.report.heat import SCALE_FROM, HeatPanel, HeatPanels, intervals
from poslab.report.sheets import Rows, estimate_columns

TASKS = {"passkey": "Pass-key", "copy": "Copy"}
SYMBOLS = {name: len(task.symbols) for name, task in ASKED.items()}  # that an answer is drawn from

WINDOW_START, BEFORE_QUESTION = 0.0, 1.0  # depths
EVERY_ANSWER = 1.0  # where the scale ends


@dataclass(frozen=True)
class TaskFigures:
    """One task: which lengths and depths were asked for, in any arm."""

    task: str
    title: str
    lengths: tuple[float, ...]  # multiples of L
    depths: tuple[float, ...]


def training_share(run: Run) -> float | None:
    """Of the training windows, how many held a question."""
    asked = run.config.get("probe")
    found = asked.get("share") if isinstance(asked, Mapping) else None
    return float(found) if isinstance(found, int | float) else None


def tasks_of(runs: Sequence[Run]) -> list[TaskFigures]:
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


def over_seeds(item: ArmFigures, task: str, length: float, column: str) -> Estimate | None:
    """A figure at one length over all depths."""
    found = [one for run in item.arm.finished if (one := _summed(run, task, length)) is not None]
    return estimate([value for one in found if (value := _shares(one)[column]) is not None])


def retrieval_heat(results: Results, task: TaskFigures) -> HeatPanels:
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
        f"Answers that are exact, in percent of the samples. Depth {WINDOW_START:g} is the start of the "
        f"window, {BEFORE_QUESTION:g} right before the question. {_asked(results, task)}"
        f"{intervals(results.seeds)}",
        "Depth",
        "Length of the window",
        "Percent of answers exact",
        SCALE_FROM,
        EVERY_ANSWER,
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
            parts = parts_of(item.arm.finished, task, length, depth)
            row: dict[str, Value] = {"arm": item.arm.label, "task": task.title, "multiple": length}
            row |= {"length": parts[0].length, "depth": depth, "n": cell.n, "mean": cell.mean}
            row |= {"half_width": cell.half_width, "lowest": cell.lowest, "highest": cell.highest}
            answer = min(part.tokens // part.samples for part in parts)
            samples = min(part.samples for part in parts)
            rows.append(
                row | {"samples": samples, "answer_tokens": answer, "chance": SYMBOLS[task.task] ** -answer}
            )
    return rows


def parts_of(
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
    parts = parts_of(results.finished, task)
    samples = sorted({part.samples for part in parts})
    answer = min(part.tokens // part.samples for part in parts)
    some = " to ".join(str(n) for n in dict.fromkeys([samples[0], samples[-1]]))
    return (
        f"{some} {'sample' if samples[-1] == 1 else 'samples'} a cell and seed. An answer has {answer} "
        f"{'token' if answer == 1 else 'tokens'}: guessed, each among {SYMBOLS[task.task]} symbols, it is "
        f"exact with a chance of {SYMBOLS[task.task] ** -answer:.2g}. "
    )


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
        "training_share": training_share(run),
        **_shares(one),
    }


def arms_sheet(results: Results, tasks: Sequence[TaskFigures]) -> list[dict[str, Value]]:
    """retrieval_arms.csv: a row an arm, task and length, over all depths and seeds."""
    rows: list[dict[str, Value]] = []
    for task in tasks:
        for item in results.arms:
            for length in task.lengths:
                columns = {
                    column: over_seeds(item, task.task, length, column)
                    for column in ("exact_share", "token_share", "nats_per_token")
                }
                if columns["exact_share"] is None:
                    continue
                row: dict[str, Value] = {"task": task.title, "arm": item.arm.label, "multiple": length}
                row["seeds_finished"] = len(item.rows)
                row["guess_nats"] = math.log(SYMBOLS[task.task]) if task.task in SYMBOLS else None
                for column, at in columns.items():
                    row |= estimate_columns(column, at)
                rows.append(row)
    return rows


def runs_sheet(results: Results) -> Rows:
    """retrieval.csv: a row a run, task, length and depth."""
    return [
        _run_row(item, run, key) for item in results.arms for run in item.arm.finished for key in run.probe
    ]
