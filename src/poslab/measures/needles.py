"""Whether a model that never trained on questions finds a fact in its window, by length and depth."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from poslab.analysis.estimates import estimates
from poslab.analysis.statistics import CONFIDENCE, Estimate, grouped
from poslab.config.schema import ConfigError, RunConfig, longest_length
from poslab.config.text import counted, listing
from poslab.data.needles import CANDIDATES, KINDS, Needle, hidden, needles, room, widest
from poslab.measures import Measurement, Row, Trained
from poslab.objectives import UNSCORED
from poslab.record.frames import DataFrame
from poslab.report import formatting
from poslab.report.cells import half_widths
from poslab.report.charts import HeatPanels
from poslab.report.document import Section
from poslab.report.study_tables import StudyTables

LENGTH = "Length of the window"
DEPTHS = 0.0, 0.25, 0.5, 0.75, 1.0  # depths of the fact in the window
CHANCE = 1 / CANDIDATES
TITLES = {"one": "One fact", "several": f"{CANDIDATES} facts, one asked for"}


class Needles(Measurement):
    """The share of questions for which the right one of four answers is the likeliest; chance is 1/4."""

    columns = "kind", "multiple", "length", "depth", "samples", "right"
    order = 31
    axis = "depth"

    def wanted(self, config: RunConfig) -> bool:
        return config.evaluate.needles > 0

    def measure(self, trained: Trained) -> Iterator[Row]:
        """Yield a row per kind, length and depth, for the lengths with room for the facts.

        The answers to a question may have different numbers of tokens. All start at the same place, and each
        is scored by the sum of its tokens' losses. Raise ConfigError if no length has room.
        """
        from poslab.data.segments import extrapolation_segments
        from poslab.data.tokenizer_file import read_tokenizer
        from poslab.data.tokens import Bytes
        from poslab.evaluation.extrapolation import lengths_up_to

        gpt, config = trained.gpt, trained.config
        longest, count = longest_length(config), config.evaluate.needles
        segments, _ = extrapolation_segments(trained.corpus, count, longest, config.evaluate.documents)
        vocabulary = config.data["vocabulary"]
        tokenizer = Bytes() if vocabulary == "bytes" else read_tokenizer(Path(vocabulary))
        questions = {kind: needles(kind, len(segments), tokenizer) for kind in KINDS}
        needed = max(map(room, questions.values()))
        reached = lengths_up_to(longest, config.context_length, gpt.scheme.max_length)
        lengths = [(multiple, length) for multiple, length in reached if length >= needed]
        if not lengths:
            raise ConfigError(
                f"evaluate.needles: facts, question and answer take {needed:,} tokens, and no window is that "
                "long: leave it out, or choose longer windows"
            )
        gpt.to(config.trainer.accelerator)
        for kind, multiple, length, depth in at_depths(trained, "needles", KINDS, lengths, DEPTHS):
            right, *wrong = answer_losses(trained, segments[:, -length:], questions[kind], depth).T
            yield {
                "kind": kind,
                "multiple": f"{multiple:g}",
                "length": length,
                "depth": depth,
                "samples": len(right),
                "right": int((right < np.min(wrong, axis=0)).sum()),  # a tie counts as wrong
            }

    def summarise(self, table: DataFrame) -> DataFrame:
        sums = table.groupby(["run", "kind", "multiple"], sort=False)[["right", "samples"]].sum()
        shares = (sums.right / sums.samples).unstack(["kind", "multiple"])
        shares.columns = [_name(kind, float(multiple)) for kind, multiple in shares.columns]
        return shares

    def curve(self, table: DataFrame) -> DataFrame:
        sums = table.groupby(["depth", "kind"])[["right", "samples"]].sum()
        return (sums.right / sums.samples).unstack("kind")

    def section(self, study: StudyTables) -> Section | None:
        section, table = study.default_section(self), study.table(self)
        if section is None or table is None:
            return None
        table = table.astype({"multiple": float, "depth": float})
        lengths = dict.fromkeys((max(1.0, table.multiple.min()), table.multiple.max()))
        return replace(
            section,
            about="A line of the text states a key of five digits for a name, and the end of the window "
            "repeats that line. The model, which never trained on such questions, chooses the likeliest of "
            f"{CANDIDATES} keys. With one fact, the others are not in the text; with several, they belong to "
            f"other names. Guessing is right in {100 * CHANCE:g} % of the questions. Tests of whether an arm "
            "is right more often are not corrected for the number of arms and lengths.",
            findings=tuple(_finding(study, table, kind, multiple) for kind in KINDS for multiple in lengths),
            charts=tuple(_heat(study, table[table.kind == kind], TITLES[kind]) for kind in KINDS),
        )


def _name(kind: str, multiple: float) -> str:
    """Return the name of the figure in summary.csv."""
    return f"needles_{kind}_{multiple:g}x"


def _finding(study: StudyTables, table: DataFrame, kind: str, multiple: float) -> str:
    """Return a sentence on which arms are right more often than guessing."""
    count = int(table[(table.kind == kind) & (table.multiple == multiple)].samples.min())
    figure = _name(kind, multiple)
    sides = grouped(
        (is_above_guessing(share, count), f"{item.arm.label} ({formatting.share(share.mean)} %)")
        for item in study.results.arms
        if (share := estimates(item.rows, [figure]).get(figure)) is not None
    )
    above, rest = (sides.get(side, []) for side in (True, False))
    at = f"{TITLES[kind]}, at {formatting.multiple(multiple)}, {counted(count, 'question')} at each depth"
    if study.results.seeds < 2 and rest:
        return f"{at}: {listing(rest)}. One seed: no interval, so no arm is separated from guessing."
    more = f"right more often than guessing: {listing(above)}" if above else ""
    same = f"not separated from guessing: {listing(rest)}" if rest else ""
    return f"{at}, {'; '.join(filter(None, (more, same))) or 'nothing was measured'}."


def is_above_guessing(share: Estimate, questions: int) -> bool:
    """Return whether neither the noise of seeds nor that of so few questions explains a share above CHANCE.

    `questions` is the number of questions at one depth, since all depths ask for the same keys.
    """
    from scipy.stats import binomtest

    if share.half_width is None or share.mean - share.half_width <= CHANCE:
        return False
    by_guessing = binomtest(math.floor(share.mean * questions), questions, CHANCE, alternative="greater")
    return bool(by_guessing.pvalue < 1 - CONFIDENCE)


def _heat(study: StudyTables, table: DataFrame, title: str) -> HeatPanels:
    cells = table.set_index(["arm", "depth", "multiple"])
    caption = (
        f"In percent of the questions; guessing gives {100 * CHANCE:g}. Depth 0 is the start of the window, "
        f"1 is right before the question. {half_widths(study.results)}"
    )
    words = f"needles_{table.kind.iloc[0]}", f"{title}: right answers by length and depth", caption
    axes, titles = ("Depth", LENGTH, "Percent of answers right"), ("{:g}".format, formatting.multiple)
    return study.heat(words, axes, cells.right / cells.samples, titles, shares=True)


def at_depths(
    trained: Trained,
    name: str,
    kinds: Sequence[str],
    lengths: Sequence[tuple[float, int]],
    depths: Sequence[float],
) -> Iterator[tuple[str, float, int, float]]:
    """Yield each kind, length (as a multiple of L, and in tokens) and depth, in the precision of the run."""
    from poslab.evaluation.losses import in_precision

    places = [(kind, *length, depth) for kind in kinds for length in lengths for depth in depths]
    work, done = sum(length for _, _, length, _ in places), 0
    with trained.progress.phase(f"evaluating {name}"), in_precision(trained.config):
        for kind, multiple, length, depth in places:
            yield kind, multiple, length, depth
            done += length
            trained.progress.share(f"{name} at {multiple:g} L", done / work)


def answer_losses(
    trained: Trained, texts: Int[np.ndarray, "N T"], questions: Sequence[Needle], depth: float
) -> Float[np.ndarray, "N C"]:
    """Return the loss in nats of each answer to the question in each text, the right answer first."""
    from poslab.evaluation.losses import token_losses
    from poslab.objectives import build_objective

    tokens, targets = (side.reshape(-1, texts.shape[1]) for side in hidden(texts, questions, depth))
    if build_objective(trained.config.objective).causal:
        tokens, targets = tokens[:, :-1], targets[:, 1:]
    else:  # the answer is hidden, like tokens in training
        tokens = np.where(targets == UNSCORED, tokens, trained.corpus.vocabulary)
    losses = token_losses(trained.gpt, tokens, targets, widest(questions))
    return losses.sum(axis=1).reshape(-1, CANDIDATES)
