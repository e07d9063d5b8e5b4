"""What trained models retrieve: figures over seeds of a probe's answers, by task, length and depth."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from poslab.analysis.estimates import ArmFigures, estimate_columns, estimates
from poslab.analysis.results import Results
from poslab.analysis.sheets import Rows
from poslab.analysis.statistics import Estimate, estimate
from poslab.config.text import plain
from poslab.data.questions import TASKS as QUESTIONS
from poslab.record.reader import Run
from poslab.record.retrieval import Retrieved

TASKS = {"passkey": "Pass-key", "copy": "Copy"}
SYMBOLS = {task: len(kind.symbols) for task, kind in QUESTIONS.items()}  # that an answer is drawn from
FIGURES = ("exact_share", "token_share", "nats_per_token")


@dataclass(frozen=True)
class TaskFigures:
    """One task, and the lengths and depths that any arm was probed at."""

    task: str
    title: str
    lengths: tuple[float, ...]  # multiples of L
    depths: tuple[float, ...]


def training_share(run: Run) -> float | None:
    """The share of the training windows with a question in them."""
    probe = run.config.get("probe")
    share = probe.get("share") if isinstance(probe, Mapping) else None
    return float(share) if isinstance(share, int | float) else None


def parts_of(
    runs: Iterable[Run], task: TaskFigures, length: float | None = None, depth: float | None = None
) -> list[Retrieved]:
    """What was retrieved of a task, at one length and depth or at all."""
    return [
        one
        for run in runs
        for (kind, k, at), one in run.probe.items()
        if kind == task.task and length in (None, k) and depth in (None, at)
    ]


def _summed(run: Run, task: str, length: float) -> Retrieved | None:
    """One length over all depths."""
    parts = [one for (at, k, _), one in run.probe.items() if (at, k) == (task, length)]
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


def shares(one: Retrieved) -> dict[str, float | None]:
    """The figures of what was retrieved, by the names of their columns."""
    return {
        "exact_share": one.exact / one.samples,
        "token_share": one.correct / one.tokens,
        "nats_per_token": one.nll / one.tokens if math.isfinite(one.nll) else None,
    }


def over_seeds(item: ArmFigures, task: str, length: float) -> dict[str, Estimate]:
    """The figures at one length over all depths."""
    by_seed = [one for run in item.arm.finished if (one := _summed(run, task, length)) is not None]
    return estimates(list(map(shares, by_seed)), FIGURES)


def exact_share(item: ArmFigures, task: TaskFigures, length: float, depth: float) -> Estimate | None:
    """The share of answers that are exact at one length and depth."""
    by_seed = [run.probe.get((task.task, length, depth)) for run in item.arm.finished]
    return estimate([one.exact / one.samples for one in by_seed if one is not None])


def arm_rows(results: Results, tasks: Sequence[TaskFigures]) -> Rows:
    """retrieval_arms.csv: a row an arm, task and length, over all depths and seeds."""
    return [
        {
            "task": task.title,
            "arm": item.arm.label,
            "multiple": length,
            "seeds_finished": len(item.rows),
            "guess_nats": math.log(SYMBOLS[task.task]) if task.task in SYMBOLS else None,
            **estimate_columns(figures, FIGURES),
        }
        for task in tasks
        for item in results.arms
        for length in task.lengths
        if (figures := over_seeds(item, task.task, length))
    ]


def run_rows(results: Results) -> Rows:
    """retrieval.csv: a row a run, task, length and depth."""
    return [
        {
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
            **shares(one),
        }
        for item in results.arms
        for run in item.arm.finished
        for (task, length, depth), one in run.probe.items()
    ]


def tasks_of(runs: Sequence[Run]) -> list[TaskFigures]:
    """The tasks on record, those with a figure first."""
    tasks = list(dict.fromkeys(task for run in runs for task, _, _ in run.probe))
    tasks.sort(key=lambda task: (list(TASKS).index(task) if task in TASKS else len(TASKS), task))
    return [
        TaskFigures(
            task,
            TASKS.get(task) or plain(task, 40) or "unnamed",
            tuple(sorted({length for run in runs for at, length, _ in run.probe if at == task})),
            tuple(sorted({depth for run in runs for at, _, depth in run.probe if at == task})),
        )
        for task in tasks
    ]
