"""How much context a trained model uses: the loss on the same targets with L/32 to L tokens before them."""

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Int

from poslab.config.schema import RunConfig
from poslab.measures import Measurement, Row, Trained
from poslab.objectives import UNSCORED, build_objective
from poslab.record.frames import DataFrame, Numbers
from poslab.record.measures import name
from poslab.report.cells import loss, nats
from poslab.report.document import Section
from poslab.report.formatting import multiple
from poslab.report.study_tables import StudyTables
from poslab.report.tables import Column

WINDOWS = 256  # windows of validation text; each scores its last L/8 targets, in all 4,096 at L = 128
SHORTEST = 1 / 32  # the shortest context, as a fraction of L
TOLERANCE = 0.01  # nats per token above the loss at L


class ContextUsed(Measurement):
    """The shortest context, in tokens, with a loss at most 0.01 nats above that at L."""

    columns = "context", "nll", "tokens"  # sums over the same targets for every context
    order = 15
    axis = "context"

    def wanted(self, config: RunConfig) -> bool:
        """Return whether the objective is causal, so that shortening a window shortens the context."""
        return build_objective(config.objective).causal

    def measure(self, trained: Trained) -> Iterator[Row]:
        """Score the last L/8 targets of each window, in sliding windows of c tokens (see `ends`)."""
        from poslab.data.windows import validation_windows
        from poslab.evaluation.losses import in_precision, token_losses

        length = trained.config.context_length
        windows = validation_windows(trained.corpus, WINDOWS, length)
        objective = build_objective(trained.config.objective)
        tokens, targets = objective.of_evaluation(windows, trained.corpus.vocabulary)
        last_targets = targets[:, -max(1, length // 8) :]
        with trained.progress.phase("evaluating shorter contexts"), in_precision(trained.config):
            for context in contexts(length):
                places = [slice(end - context, end) for end in ends(length, context)]
                given, scored = (np.concatenate([side[:, at] for at in places]) for side in (tokens, targets))
                losses = token_losses(trained.gpt, given, scored, last_targets.shape[1] // len(places))
                yield {
                    "context": context,
                    "nll": float(losses.sum()),
                    "tokens": int((last_targets != UNSCORED).sum()),
                }

    def summarise(self, table: DataFrame) -> DataFrame:
        within = table[_above(table) <= TOLERANCE]
        return within.groupby("run").context.min().to_frame("context_used")

    def curve(self, table: DataFrame) -> DataFrame:
        return (table.nll / table.tokens).to_frame("nats").set_index(table.context)

    def section(self, study: StudyTables) -> Section | None:
        """Return the context that each arm uses, and how much higher its loss is with less."""
        if (table := study.table(self)) is None:
            return None
        table["above"] = _above(table)
        share = table.context / table.groupby("run").context.transform("max")
        by_context = table.assign(share=share).pivot(index="run", columns="share", values="above")
        shorter = [k for k in by_context.columns if k < 1]
        figures = by_context[shorter].rename(columns=lambda k: f"above_{name(k)}")
        by_arm = study.by_arm(self.summarise(table).join(figures))
        columns = (
            Column("context_used", "Context used", loss, "Tokens"),
            *(Column(f"above_{name(k)}", multiple(k), nats, "Nats above the loss at L") for k in shorter),
        )
        caption = (
            "The same targets, the last of validation windows, with fewer tokens before them. Context used "
            f"is the shortest tested context with a loss at most {TOLERANCE:g} nats above that with L tokens."
        )
        by_run = study.records(table[["arm", "run", "seed", *self.columns, "above"]])
        names = "context_used_arms", "context_used"
        section = Section("context_used", "Context used")
        return study.view(section, columns, by_arm, by_run, names, caption=caption)


def contexts(length: int) -> list[int]:
    """Return L/32, L/16, ... L in tokens, without those that are not whole numbers."""
    halvings = round(-math.log2(SHORTEST))
    return [length >> i for i in reversed(range(halvings + 1)) if length % 2**i == 0]


def ends(length: int, context: int) -> Int[np.ndarray, "E"]:
    """Return where windows of `context` tokens end that score the last L/8 targets of a window once each."""
    scored = max(1, length // 8)
    step = math.gcd(scored, max(1, context // 8))
    return np.arange(length - scored + step, length + 1, step)


def _above(table: DataFrame) -> Numbers:
    """Return the loss of each row less that of the same run with the longest context."""
    losses = table.nll / table.tokens
    longest = table.groupby("run").context.transform("max") == table.context
    at_length = losses[longest].set_axis(table.run[longest])
    return losses - table.run.map(at_length)
