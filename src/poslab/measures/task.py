"""How much of a task a trained model gets right, by the size of the samples.

An answer is exact where every token of it is the likeliest one, given the right ones before: it is then what
greedy decoding would write.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from poslab.config.schema import RunConfig
from poslab.config.text import listing, plain
from poslab.measures import Measurement, Row, Trained, Value
from poslab.objectives import UNSCORED, build_objective

if TYPE_CHECKING:
    import pandas
    from torch import Tensor

    from poslab.analysis.curves import Values
    from poslab.analysis.estimates import ArmFigures
    from poslab.analysis.sheets import Rows
    from poslab.report.charts import LineChart, PanelChart
    from poslab.report.document import Section
    from poslab.report.study_tables import StudyTables
    from poslab.report.tables import Table

SIZES = 24  # about as many are tested
LEARNED = 0.95  # exact at the longest size of training: with less, a run says nothing of longer ones
HALF = 0.5


class Task(Measurement):
    columns = "task", "size", "longest", "samples", "exact", "correct", "tokens", "nll"
    order = 5
    axis = "size"
    reads_text = False

    def wanted(self, config: RunConfig) -> bool:
        return not build_objective(config.objective).reads_text

    def measure(self, trained: Trained) -> Iterable[Row]:
        """Return a row per size, up to the scheme's `max_length`, of counts of samples and tokens."""
        import torch
        from torch.nn.functional import cross_entropy

        from poslab.evaluation.losses import of_logits
        from poslab.objectives.tasks import Task as Objective

        objective, config = build_objective(trained.config.objective), trained.config
        assert isinstance(objective, Objective)
        options, device = objective.options, torch.device(config.trainer.accelerator)
        limit = trained.gpt.scheme.max_length
        half = config.trainer.precision == "bfloat16"
        sizes = sizes_of(options.shortest, options.longest, options.tested)

        def counted(logits: "Tensor", asked: "Tensor") -> "Tensor":
            """Whether a sample is exact, its right tokens, all of them, and their loss in nats."""
            scored, right = asked != UNSCORED, logits.argmax(dim=-1) == asked
            losses = cross_entropy(logits.mT.double(), asked, ignore_index=UNSCORED, reduction="none")
            columns = (right == scored).all(dim=1), right.sum(dim=1), scored.sum(dim=1), losses.sum(dim=1)
            return torch.stack([column.double() for column in columns], dim=1)

        with (
            trained.progress.phase("evaluating the task"),
            torch.autocast(device.type, dtype=torch.bfloat16, enabled=half),
        ):
            for size in sizes:
                tokens, targets = objective.tests(size)
                if limit is not None and tokens.shape[1] > limit:
                    break
                exact, correct, scored, nll = of_logits(
                    trained.gpt.to(device), tokens, targets, (4,), counted
                ).sum(axis=0)
                yield {
                    "task": objective.section()["kind"],
                    "size": size,
                    "longest": options.longest,
                    "samples": len(tokens),
                    "exact": int(exact),
                    "correct": int(correct),
                    "tokens": int(scored),
                    "nll": float(nll),
                }
                trained.progress.share(f"size {size}", (sizes.index(size) + 1) / len(sizes))

    def summarise(self, table: "pandas.DataFrame") -> "pandas.DataFrame":
        import pandas

        found = {}
        for run, rows in table.groupby("run", sort=False):
            exact = dict(zip(rows["size"].astype(int), rows.exact / rows.samples, strict=True))
            longest = int(rows.longest.iloc[0])
            right = rows[rows["size"] == longest]
            found[run] = {
                "task_exact": exact.get(longest),
                "task_tokens": float((right.correct / right.tokens).mean()) if len(right) else None,
                "task_exact_2x": exact.get(2 * longest),
                "task_l50": l50(exact, longest),
            }
        return pandas.DataFrame.from_dict(found, orient="index").astype(float)

    def curve(self, table: "pandas.DataFrame") -> "pandas.DataFrame":
        shares = table.assign(exact=table.exact / table.samples, tokens=table.correct / table.tokens)
        return shares.set_index("size")[["exact", "tokens"]]

    def answer(self, study: "StudyTables") -> Iterable[str]:
        found = _arms(study)
        for task, items in found.items():
            yield _sentence(study, task, items)
        if len(found) > 1 and (ranks := _reciprocal_ranks(found)):
            means = [f"{label} {value:.2f}" for label, value in ranks]
            yield f"Over the tasks, the mean reciprocal rank by L50 is {listing(means, 6)}."

    def lead(self, study: "StudyTables") -> "tuple[LineChart, Table] | None":
        tasks = _arms(study)
        if not tasks:
            return None
        rows = [row for task, items in tasks.items() for row in _rows(study, task, items)]
        return _chart(study, *next(iter(tasks.items()))), _table(study, rows)

    def section(self, study: "StudyTables") -> "Section | None":
        from poslab.analysis.sheets import sheet
        from poslab.report.document import Section

        tasks, table = _arms(study), study.table(self)
        if not tasks or table is None:
            return None
        first, *others = tasks.items()
        low, high = zip(*map(wilson, table.exact, table.samples), strict=True)
        by_run = table.assign(exact_share=table.exact / table.samples, wilson_low=low, wilson_high=high)
        rows = [row for task, items in tasks.items() for row in _rows(study, task, items)]
        return Section(
            "task",
            "Tasks",
            "An answer is exact if every token of it is the likeliest one. Test samples are new to the model "
            "and the same for every run. L50 is the largest size up to which, from the longest size of "
            "training on, at least half of the answers are exact, over that longest size. It counts runs "
            f"with {100 * LEARNED:g} % exact answers at the longest size of training: the others have not "
            "learned the task.",
            (),
            (
                *(_chart(study, task, items) for task, items in others),
                *(_by_seed(study, task, items) for task, items in (first, *others)),
            ),
            (),
            {"task_arms": sheet(rows), "task": sheet(study.records(by_run))},
        )


def sizes_of(shortest: int, longest: int, tested: int) -> list[int]:
    """Return the sizes that are tested: evenly spaced, with the ends of training and of twice its longest."""
    step = max(1, round((tested - shortest) / SIZES))
    always = {longest, 2 * longest, tested}
    return sorted(size for size in {*range(shortest, tested + 1, step), *always} if size <= tested)


def l50(exact: dict[int, float], longest: int) -> float | None:
    """Return L50 of one run over the longest size of training; None where it has not learned the task."""
    if exact.get(longest, 0.0) < LEARNED:
        return None
    reached = longest
    for size in sorted(size for size in exact if size > longest):
        if exact[size] < HALF:
            break
        reached = size
    return reached / longest


def wilson(right: float, samples: float) -> tuple[float, float]:
    """Return the 95 % interval of a share by Wilson 1927."""
    z = 1.959963984540054
    share, spread = right / samples, z * z / samples
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / samples + spread / samples / 4)
    return middle - half, middle + half


def _arms(study: "StudyTables") -> "dict[str, list[ArmFigures]]":
    """The arms with finished runs, by their task."""
    tasks: dict[str, list[ArmFigures]] = {}
    for item in study.results.arms:
        for run in item.arm.finished[:1]:
            if "task.csv" in run.tables:
                tasks.setdefault(plain(run.config["objective"]["kind"], 40), []).append(item)
    return tasks


def _title(task: str) -> str:
    return task.rpartition(".")[2].replace("_", " ").capitalize()


def _learned(item: "ArmFigures") -> tuple[list[float], int]:
    """L50 of the runs that learned the task, and how many runs there are."""
    return list(item.by_seed("task_l50").values()), len(item.rows)


def _sentence(study: "StudyTables", task: str, items: "Sequence[ArmFigures]") -> str:
    """Who still solves a task, at how many times the longest size of training."""
    longest = int(items[0].arm.finished[0].config["objective"]["longest"])
    reached, rest = [], []
    for item in items:
        values, runs = _learned(item)
        if values:
            some = "" if len(values) == runs else f" ({len(values)} of {runs} seeds learned it)"
            reached.append((sum(values) / len(values), item.arm.label, some))
        else:
            rest.append(item.arm.label)
    title = f"{_title(task)}, trained on sizes up to {longest}"
    parts = []
    if reached:
        reached.sort(key=lambda each: -each[0])
        named = [f"{mean:.2f} times that size for {label}{some}" for mean, label, some in reached]
        parts.append(f"at least half of the answers are exact up to {listing(named, 8)}")
    if rest:
        verb = "has" if len(rest) == 1 else "have"
        at_size = f"{100 * LEARNED:g} % exact answers at that size"
        parts.append(f"{listing(rest, 8)} {verb} not learned it, with less than {at_size}")
    return f"{title}: {'; '.join(parts)}."


def _reciprocal_ranks(tasks: "dict[str, list[ArmFigures]]") -> list[tuple[str, float]]:
    """The mean over tasks of 1 over the rank by mean L50, of each scheme; without L50 it is 0."""
    sums: dict[str, float] = {}
    for items in tasks.values():
        means = {}
        for item in items:
            values, _ = _learned(item)
            sums.setdefault(item.arm.pos, 0.0)
            if values:
                means[item.arm.pos] = sum(values) / len(values)
        for label, mean in means.items():
            above = sum(other > mean for other in means.values())
            same = sum(other == mean for other in means.values())
            sums[label] += 1 / (above + (1 + same) / 2)  # a shared rank is the middle one
    return sorted(((label, total / len(tasks)) for label, total in sums.items()), key=lambda each: -each[1])


def _rows(study: "StudyTables", task: str, items: "Sequence[ArmFigures]") -> "Rows":
    """task_arms.csv: a row per task and arm."""
    from scipy.stats import wilcoxon

    from poslab.analysis.estimates import estimate_columns, estimates
    from poslab.analysis.statistics import EXPLORATORY

    reference = study.results.reference if study.results.reference in items else items[0]
    base = reference.by_seed("task_l50")
    names = "task_exact", "task_tokens", "task_exact_2x", "task_l50"
    rows: Rows = []
    for item in items:
        values, runs = _learned(item)
        mine = item.by_seed("task_l50")
        shared = [(mine[seed], base[seed]) for seed in sorted(mine.keys() & base.keys())]
        p = None
        if item is not reference and len(shared) >= EXPLORATORY and any(a != b for a, b in shared):
            p = float(wilcoxon([a - b for a, b in shared], zero_method="zsplit").pvalue)
        row: dict[str, Value] = {"task": task, "arm": item.arm.label, "seeds_finished": runs}
        row |= {"seeds_learned": len(values), **estimate_columns(estimates(list(item.rows), names), names)}
        row |= {"reference": reference.arm.label, "shared_seeds": len(shared), "p_wilcoxon": p}
        rows.append(row)
    return rows


def _table(study: "StudyTables", rows: "Rows") -> "Table":
    from poslab.analysis.statistics import EXPLORATORY
    from poslab.report.cells import looks, loss, named, percent, probability, words
    from poslab.report.tables import Cell, Column, Table

    def learned(row: "Row", key: str) -> Cell:
        return Cell(f"{row[key]} of {row['seeds_finished']}")

    columns = (
        words("task", "Task"),
        named(looks(study.results)),
        Column("seeds_learned", "Learned", learned, number=False, about="seeds with 95 % exact answers"),
        Column("task_exact", "Exact, %", percent, about="at the longest size of training"),
        Column("task_exact_2x", "At twice, %", percent, about="at twice the longest size of training"),
        Column("task_l50", "L50", loss, about="in multiples of the longest size of training"),
        Column("p_wilcoxon", "p", probability, about="of L50 against the reference's"),
    )
    caption = (
        "Learned: seeds with 95 % exact answers at the longest size of training. Exact answers there and at "
        "twice that size, and L50 in multiples of it, of the seeds that learned the task: means over seeds "
        f"with 95 % Student-t intervals. p is that of L50 against {rows[0]['reference']}, by Wilcoxon's "
        f"signed ranks over shared seeds, from {EXPLORATORY} on, not corrected."
    )
    return Table("Answer", caption, columns, rows, ("task_arms.csv", "task.csv"), grouped=True)


def _chart(study: "StudyTables", task: str, items: "Sequence[ArmFigures]") -> "LineChart":
    """Exact answers by size, means over the seeds."""
    from poslab.analysis.curves import points
    from poslab.report.cells import arms, bars
    from poslab.report.charts import LineChart, Series, octaves
    from poslab.report.formatting import count

    shares = _shares(study)
    series = tuple(
        Series(look, item.arm.label, points([shares[run.name] for run in item.arm.finished]))
        for look, item in arms(study.results)
        if item in items
    )
    longest = float(items[0].arm.finished[0].config["objective"]["longest"])
    return LineChart(
        f"task_{task}",
        f"{_title(task)}: exact answers by size",
        "The share of test samples with an exact answer. The mark is the longest size of training. "
        f"{bars(study.results)}",
        "Size of the sample",
        "Share of exact answers",
        2,
        octaves(series, count),
        longest,
        series,
        frame=(0.0, 1.0),
        mark_label="trained up to here",
    )


def _by_seed(study: "StudyTables", task: str, items: "Sequence[ArmFigures]") -> "PanelChart":
    """The same, a panel an arm and a line a seed: means hide that a seed learns a task or does not."""
    from dataclasses import replace

    from poslab.analysis.curves import points
    from poslab.analysis.palette import head_number
    from poslab.report.charts import PanelChart, Series

    whole, shares = _chart(study, task, items), _shares(study)
    name, panels = f"{whole.name}_seeds", []
    seeds = sorted({run.seed for item in items for run in item.arm.finished})
    for line in whole.series:
        item = next(item for item in items if item.arm.label == line.label)
        lines = tuple(
            Series(head_number(seeds.index(run.seed)), f"seed {run.seed}", points([shares[run.name]]))
            for run in item.arm.finished
        )
        panels.append(replace(whole, name=name, title=line.label, series=lines))
    rows = [
        {"arm": panel.title, "line": line.label, **point.row}
        for panel in panels
        for line in panel.series
        for point in line.points
    ]
    return PanelChart(
        name,
        f"{whole.title}, each seed",
        "The share of exact answers again, a line for each seed. The mark is the longest size of training.",
        tuple(panels),
        tuple((head_number(place), f"seed {seed}") for place, seed in enumerate(seeds)),
        "Seeds",
        rows,
    )


def _shares(study: "StudyTables") -> "dict[str, Values]":
    """The share of exact answers by size, of each run."""
    table = study.table(Task())
    shares: dict[str, Values] = {}
    for row in () if table is None else table.itertuples():
        size = int(row.size)
        shares.setdefault(row.run, {})[float(size), (("size", size),)] = row.exact / row.samples
    return shares
