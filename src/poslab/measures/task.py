"""How much of a task a trained model gets right, by the size of the samples.

An answer is exact if each of its tokens is the likeliest one, given the right tokens before it: greedy
decoding would then write this answer.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from poslab.config.schema import RunConfig
from poslab.measures import Measurement, Row, Trained
from poslab.objectives import UNSCORED, build_objective
from poslab.record.frames import DataFrame
from poslab.report.charts import LineChart, PanelChart
from poslab.report.document import Section
from poslab.report.study_tables import StudyTables
from poslab.report.tables import Table

if TYPE_CHECKING:
    from torch import Tensor

SIZES = 24  # about this many sizes are tested
LEARNED = 0.95  # a run with a smaller share exact at the longest size of training has not learned the task
HALF = 0.5


class Task(Measurement):
    columns = "task", "size", "longest", "samples", "exact", "correct", "tokens", "nll"
    order = 5
    axis = "size"
    reads_text = False

    def wanted(self, config: RunConfig) -> bool:
        return not build_objective(config.objective).reads_text

    def measure(self, trained: Trained) -> Iterable[Row]:
        """Yield a row of counts of samples and tokens for each size, up to the scheme's `max_length`."""
        import torch
        from torch.nn.functional import cross_entropy

        from poslab.evaluation.losses import in_precision, of_logits
        from poslab.objectives.tasks import Task as Objective

        objective, config = build_objective(trained.config.objective), trained.config
        assert isinstance(objective, Objective)
        options, gpt = objective.options, trained.gpt.to(config.trainer.accelerator)
        limit = gpt.scheme.max_length
        sizes = sizes_of(options.shortest, options.longest, options.tested)

        def counted(logits: "Tensor", targets: "Tensor") -> "Tensor":
            """Return per sample: whether exact, how many tokens are right and are scored, and the nats."""
            scored, right = targets != UNSCORED, logits.argmax(dim=-1) == targets
            losses = cross_entropy(logits.mT.double(), targets, ignore_index=UNSCORED, reduction="none")
            columns = (right == scored).all(dim=1), right.sum(dim=1), scored.sum(dim=1), losses.sum(dim=1)
            return torch.stack([column.double() for column in columns], dim=1)

        with trained.progress.phase("evaluating the task"), in_precision(config):
            for size in sizes:
                tokens, targets = objective.tests(size)
                if limit is not None and tokens.shape[1] > limit:
                    break
                exact, correct, scored, nll = of_logits(gpt, tokens, targets, (4,), counted).sum(axis=0)
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

    def summarise(self, table: DataFrame) -> DataFrame:
        import pandas

        figures = {}
        for run, rows in table.groupby("run", sort=False):
            exact = dict(zip(rows["size"].astype(int), rows.exact / rows.samples, strict=True))
            longest = int(rows.longest.iloc[0])
            right = rows[rows["size"] == longest]
            figures[run] = {
                "task_exact": exact.get(longest),
                "task_tokens": float((right.correct / right.tokens).mean()) if len(right) else None,
                "task_exact_2x": exact.get(2 * longest),
                "task_l50": l50(exact, longest),
            }
        return pandas.DataFrame.from_dict(figures, orient="index").astype(float)

    def curve(self, table: DataFrame) -> DataFrame:
        shares = table.assign(exact=table.exact / table.samples, tokens=table.correct / table.tokens)
        return shares.set_index("size")[["exact", "tokens"]]

    def answer(self, study: StudyTables) -> Iterable[str]:
        from poslab.report.sections.tasks import sentences

        return sentences(study)

    def lead(self, study: StudyTables) -> tuple[LineChart | PanelChart, Table] | None:
        from poslab.report.sections.tasks import lead

        return lead(study)

    def section(self, study: StudyTables) -> Section | None:
        from poslab.report.sections.tasks import section

        return section(study)


def sizes_of(shortest: int, longest: int, tested: int) -> list[int]:
    """Return the tested sizes: evenly spaced ones, the longest of training, its double and `tested`."""
    step = max(1, round((tested - shortest) / SIZES))
    always = {longest, 2 * longest, tested}
    return sorted(size for size in {*range(shortest, tested + 1, step), *always} if size <= tested)


def l50(exact: dict[int, float], longest: int) -> float | None:
    """Return a run's L50 over the longest size of training; None if the run has not learned the task."""
    if exact.get(longest, 0.0) < LEARNED:
        return None
    reached = longest
    for size in sorted(size for size in exact if size > longest):
        if exact[size] < HALF:
            break
        reached = size
    return reached / longest


def wilson(right: float, samples: float) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927)."""
    z = 1.959963984540054
    share, spread = right / samples, z * z / samples
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / samples + spread / samples / 4)
    return middle - half, middle + half
