"""How well a model that trained on questions retrieves their answers, by window length and depth.

A low perplexity past the training length does not show that a model uses the longer context (Kazemnejad et
al. 2023): a flat loss may come from the last few tokens. So runs with a `probe` are also tested, beside the
losses, on questions about something at a given depth of the window.
"""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from poslab.analysis.sheets import Rows, sheet
from poslab.analysis.statistics import grouped
from poslab.config.schema import RunConfig, longest_length
from poslab.config.text import listing
from poslab.data.questions import TASKS as QUESTIONS
from poslab.measures import Measurement, Row, Trained
from poslab.measures.needles import LENGTH, at_depths
from poslab.record.frames import DataFrame
from poslab.record.measures import name
from poslab.record.schema import TableSchema
from poslab.report import formatting
from poslab.report.cells import figure, half_widths, looks, loss, named, percent, span, words
from poslab.report.charts import HeatPanels
from poslab.report.document import Section
from poslab.report.study_tables import StudyTables
from poslab.report.tables import Column, Table

if TYPE_CHECKING:
    from torch import Tensor

    from poslab.model.gpt import GPT

TITLES = {"passkey": "Pass-key", "copy": "Copy"}
SYMBOLS = {task: len(kind.symbols) for task, kind in QUESTIONS.items()}  # size of each answer's alphabet
COUNTS = ["samples", "exact", "correct", "nll", "tokens"]
FIGURES = ("exact_share", "token_share", "nats_per_token")
SHOWN = ("exact_share", "nats_per_token")  # the figures in the table
LEARNED = 0.05  # an arm with a smaller share of exact samples at L has not learned the task
WINDOW_START, BEFORE_QUESTION = 0.0, 1.0  # depths


class Retrieval(Measurement):
    table = TableSchema(
        "probe.csv",
        (
            "task",  # passkey | copy
            "multiple",
            "length",
            "depth",  # of the statement in the window: 0 at its start, 1 right before the question
            "samples",
            "exact",  # samples in which every answer token was the most likely one
            "correct",  # answer tokens that were the most likely ones
            "nll",  # sum over the answer tokens
            "tokens",  # answer tokens
        ),
    )
    order = 30
    axis = "depth"

    def wanted(self, config: RunConfig) -> bool:
        return bool(config.probe.tasks)

    def measure(self, trained: Trained) -> Iterator[Row]:
        """Yield a row per task, length and depth, for lengths up to the scheme's `max_length`.

        `exact` counts the samples that greedy decoding would answer correctly: every answer token was the
        most likely one.
        """
        from poslab.data.questions import questions
        from poslab.data.segments import extrapolation_segments
        from poslab.evaluation.extrapolation import lengths_up_to

        gpt, config, probe = trained.gpt, trained.config, trained.config.probe
        assert probe.samples is not None
        assert probe.depths is not None
        longest = longest_length(config)
        segments, _ = extrapolation_segments(
            trained.corpus, probe.samples, longest, config.evaluate.documents
        )
        texts = segments[np.arange(probe.samples) % len(segments)]
        lengths = lengths_up_to(longest, config.context_length, gpt.scheme.max_length)
        depths = np.linspace(0, 1, probe.depths).tolist()
        gpt.to(config.trainer.accelerator)
        for task, multiple, length, depth in at_depths(trained, "retrieval", probe.tasks, lengths, depths):
            windows = questions(texts[:, -length - 1 :], QUESTIONS[task], depth)
            losses, likeliest = answers(gpt, windows, QUESTIONS[task].length)
            yield {
                "task": task,
                "multiple": f"{multiple:g}",
                "length": length,
                "depth": f"{depth:g}",
                "samples": len(losses),
                "exact": int(likeliest.all(axis=1).sum()),
                "correct": int(likeliest.sum()),
                "nll": float(losses.sum()),
                "tokens": losses.size,
            }

    def curve(self, table: DataFrame) -> DataFrame:
        line = table.task + "_" + table.multiple.astype(float).map("{:g}x".format)
        return (table.exact / table.samples).groupby([table.depth, line]).first().unstack()

    def section(self, study: StudyTables) -> Section | None:
        table = study.table(self)
        if table is None:
            return None
        table = table.astype({"multiple": float, "depth": float})
        tasks = {task: table[table.task == task] for task in TITLES if (table.task == task).any()}
        figures = {task: _over_depths(rows) for task, rows in tasks.items()}
        by_arm = [row for task, of_task in figures.items() for row in _by_length(study, task, of_task)]
        by_run = table.assign(**_figures(table))
        columns = ["arm", "run", "seed", "task", "multiple", "length", "depth"]
        columns += ["samples", "exact", "correct", "tokens", "nll", *FIGURES]
        return Section(
            "retrieval",
            "Retrieval",
            "Whether the trained model finds an answer at a given depth of the window, if asked for it at "
            "the window's end. An answer is exact if each of its tokens was the most likely one. Lengths are "
            "those of the whole window; L is the training length.",
            _findings(study, by_arm),
            tuple(_heat(study, task, rows) for task, rows in tasks.items()),
            (_table(study, figures),),
            {"retrieval": sheet(study.records(by_run[columns])), "retrieval_arms": sheet(by_arm)},
        )


def answers(
    gpt: "GPT", windows: Int[np.ndarray, "N T+1"], last: int
) -> tuple[Float[np.ndarray, "N last"], Bool[np.ndarray, "N last"]]:
    """Return the loss in nats of each of the `last` targets, and whether it was the most likely token."""
    import torch

    from poslab.evaluation.losses import of_logits

    def losses_and_hits(logits: "Tensor", targets: "Tensor") -> "Tensor":
        wide = logits.double()
        losses = -wide.log_softmax(dim=-1).gather(-1, targets[..., None])[..., 0]
        return torch.stack([losses, wide.argmax(dim=-1) == targets], dim=-1)

    pairs = of_logits(gpt, windows[:, :-1], windows[:, 1:], (last, 2), losses_and_hits, last)
    return pairs[..., 0], pairs[..., 1] == 1


def _figures(sums: DataFrame) -> dict[str, Any]:
    """Return the columns FIGURES, computed from sums of COUNTS."""
    return {
        "exact_share": sums.exact / sums.samples,
        "token_share": sums.correct / sums.tokens,
        "nats_per_token": sums.nll / sums.tokens,
    }


def _over_depths(table: DataFrame) -> DataFrame:
    """Return FIGURES of each length and run, over all depths."""
    sums = table.groupby(["multiple", "run"])[COUNTS].sum(skipna=False)
    return sums[[]].assign(**_figures(sums))


def _by_length(study: StudyTables, task: str, figures: DataFrame) -> Rows:
    """Return a task's rows of retrieval_arms.csv: one per length and arm, over all depths and seeds."""
    guess = {"guess_nats": math.log(SYMBOLS[task])}
    return [
        {"task": TITLES[task], "arm": row["arm"], "multiple": length, **guess, **row}
        for length, by_run in figures.groupby(level="multiple")
        for row in study.by_arm(by_run.droplevel("multiple"))
    ]


def _table(study: StudyTables, tasks: Mapping[str, DataFrame]) -> Table:
    """Return a table with a row per task and arm, and the figures of all lengths side by side."""
    lengths = sorted({length for figures in tasks.values() for length in figures.index.unique("multiple")})
    exact, answer = "Exact, percent", "Answer, nats per token"
    columns = (
        words("task", "Task"),
        named(looks(study.results)),
        *(Column(f"exact_share_{name(k)}", formatting.multiple(k), percent, exact) for k in lengths),
        *(Column(f"nats_per_token_{name(k)}", formatting.multiple(k), loss, answer) for k in lengths),
    )
    records = []
    for task, figures in tasks.items():
        wide = figures[[*SHOWN]].unstack("multiple")
        wide.columns = [f"{figure}_{name(k)}" for figure, k in wide.columns]
        records += [{"task": TITLES[task], **row} for row in study.by_arm(wide)]
    losses = [f"{formatting.number(math.log(SYMBOLS[task]))} ({TITLES[task].lower()})" for task in tasks]
    caption = (
        "Over all depths. Nats per token is the loss on the answer only, which moves before answers become "
        f"exact; guessing among the symbols of the answer loses {listing(losses)}. A dash means that the "
        "scheme is not defined at that length, or was not measured there."
    )
    sources = "retrieval_arms.csv", "retrieval.csv"
    return Table("By task and arm", caption, columns, records, sources, grouped=True)


def _heat(study: StudyTables, task: str, table: DataFrame) -> HeatPanels:
    answer = int((table.tokens // table.samples).min())
    chance = SYMBOLS[task] ** -answer
    cells = table.set_index(["arm", "depth", "multiple"])
    least = cells.groupby(level=[0, 1, 2])[["length", "samples"]].min().to_dict("index")
    of_task = {"task": TITLES[task], "answer_tokens": answer, "chance": chance}
    samples = sorted(table.samples.unique().tolist())
    caption = (
        f"Exact answers, in percent of the samples. Depth {WINDOW_START:g} is the start of the window, "
        f"{BEFORE_QUESTION:g} is right before the question. {span(samples)} samples per cell and seed. An "
        f"answer has {answer} tokens; with each guessed among "
        f"{SYMBOLS[task]} symbols, it is exact with a chance of {chance:.2g}. {half_widths(study.results)}"
    )
    return study.heat(
        (f"retrieval_{task}", f"{TITLES[task]} retrieval by length and depth", caption),
        ("Depth", LENGTH, "Percent of answers exact"),
        cells.exact / cells.samples,
        ("{:g}".format, formatting.multiple),
        True,
        lambda place: {**of_task, **least[place]},
    )


def _findings(study: StudyTables, rows: Rows) -> tuple[str, ...]:
    by_task = grouped((str(row["task"]), row) for row in rows)
    one_seed = "One seed: no interval, no winner claimed."
    sure = one_seed if study.results.seeds < 2 else "Descriptive: no difference between arms is tested."
    return (*(_finding(task, of_task) for task, of_task in by_task.items()), sure)


def _finding(title: str, rows: Rows) -> str:
    """Return a sentence with each arm's share of exact answers in a task, at L and at the longest length."""
    shares = {(row["arm"], row["multiple"]): figure(row, "exact_share_mean") for row in rows}
    lengths = dict.fromkeys((1.0, max(float(str(row["multiple"])) for row in rows)))
    exact = [
        f"{arm} ({' and '.join(map(_share, (shares.get((arm, length)) for length in lengths)))})"
        for arm in dict.fromkeys(arm for arm, _ in shares)
    ]
    return (
        f"{title}, percent exact at {' and at '.join(map(formatting.multiple, lengths))}: {listing(exact)}. "
        f"An arm with less than {100 * LEARNED:g} % at L has not learned the task, and shows nothing past L."
    )


def _share(share: float | None) -> str:
    return "not defined" if share is None else formatting.share(share)
