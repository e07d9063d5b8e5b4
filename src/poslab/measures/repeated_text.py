"""Whether a model reads an earlier copy of a repeated passage, by the distance back to that copy.

The passage is the last tokens of a held-out window. It is scored with a copy of it in place of the text at
some distance before it, and with the original text there. The two losses differ by the value of the copy less
that of the text that it replaces. Copying reveals induction heads (Olsson et al. 2022, arXiv 2209.11895).
Natural repeats are where the author put them; these copies can be at any distance.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from poslab.analysis.curves import Point
from poslab.analysis.estimates import estimate_columns
from poslab.analysis.sheets import Rows
from poslab.analysis.spread import noise_of_draws
from poslab.analysis.statistics import paired
from poslab.config.schema import RunConfig, longest_length
from poslab.measures import Measurement, Row, Trained
from poslab.objectives import UNSCORED, build_objective
from poslab.record.frames import DataFrame, Numbers
from poslab.record.measures import name
from poslab.report.cells import lines, nats, span
from poslab.report.charts import LineChart, Series, octaves
from poslab.report.document import Section
from poslab.report.formatting import multiple, number
from poslab.report.study_tables import StudyTables
from poslab.report.tables import Column
from poslab.report.verdict import phrases

SEGMENTS = 32  # at most so many of the evaluation segments count, each with one passage
PASSAGE = 32  # tokens
LOWER, NOT_LOWER = "the loss is lower for", "a lower loss is not shown for"
CUE = 8  # first tokens of a passage, by which a repeat can be recognised: not scored


class RepeatedText(Measurement):
    """The change of the loss on a 32-token passage, in nats per token, due to a copy some distance before."""

    # Sums over the same targets, with the copy and without it.
    columns = "multiple", "distance", "window", "document", "nll", "nll_without", "tokens"
    order = 25
    axis = "distance"

    def wanted(self, config: RunConfig) -> bool:
        """Return whether the objective is causal, so that a distance back is defined."""
        return build_objective(config.objective).causal

    def measure(self, trained: Trained) -> Iterator[Row] | None:
        """Return the rows; None if no window has room for a copy."""
        longest = longest_length(trained.config)
        limit = trained.gpt.scheme.max_length or longest
        places = windows(trained.config.context_length, min(longest, limit))
        return _rows(trained, places) if places else None

    def summarise(self, table: DataFrame) -> DataFrame:
        """Return the change at the longest distance within a window of L, and at the longest of all."""
        multiple = table.multiple.astype(float)
        reported = multiple.isin(_reported(multiple))
        changes = _change(table[reported].groupby(["run", multiple[reported]])).unstack()
        return changes.rename(columns=lambda k: f"repeated_text_{k:g}x")

    def curve(self, table: DataFrame) -> DataFrame:
        return _change(table.groupby("distance")).to_frame("change")

    def section(self, study: StudyTables) -> Section | None:
        """Return each arm's change by distance, with intervals over seeds and documents."""
        if (whole := study.table(self)) is None:
            return None
        whole = whole.astype({"multiple": float})
        changes = _change(whole.groupby(["run", "multiple"])).rename("change")
        table = whole[np.isfinite(whole.join(changes, on=["run", "multiple"]).change)]
        if table.empty:
            return None
        results, multiples = study.results, sorted(table.multiple.unique())
        series = lines(results, lambda item: tuple(_points(table[table.arm == item.arm.label])))
        by_label = {line.label: {name(point.x): point for point in line.points} for line in series}
        by_arm: Rows = [{"arm": label, **estimate_columns(at, at)} for label, at in by_label.items()]
        columns = (
            Column(name(k), multiple(k), nats, "Change, nats per token, by distance") for k in multiples
        )
        intervals = "95 % intervals are over seeds and documents, and not corrected for their number."
        sure = intervals if results.seeds > 1 else "One seed: no interval."
        caption = (
            f"The loss on the last {PASSAGE - CUE} of {PASSAGE} tokens with a copy of all {PASSAGE} in place "
            "of other text before them, less their loss with that text. Below 0 the copy helps. If they are "
            "copied exactly, the change is minus that loss, which is in the CSV of runs. Windows are L long "
            f"for distances up to L/2, and twice the distance for longer ones. {sure}"
        )
        chart = LineChart(
            "repeated_text_by_distance",
            "Repeated text by distance",
            caption,
            "Distance back to the first copy, multiples of L",
            "Change of the loss (nats per token)",
            series,
            octaves(series, multiple),
            1.0,
        )
        runs = whole.groupby(["arm", "run", "seed", "multiple", "distance", "window"], sort=False)
        by_run = runs[["nll", "nll_without", "tokens"]].sum(skipna=False).reset_index()
        findings = tuple(_findings(series, table)) if results.seeds > 1 else ()
        section = Section("repeated_text", chart.title, findings=findings, charts=(chart,))
        names = "repeated_text_arms", "repeated_text"
        return study.view(section, columns, by_arm, study.records(by_run), names)


def _rows(trained: Trained, places: Sequence[tuple[int, Sequence[int]]]) -> Iterator[Row]:
    """Score each passage without a copy, and with one at each distance, in windows of the same length."""
    from poslab.data.segments import extrapolation_segments
    from poslab.evaluation.losses import in_precision, token_losses

    config, corpus = trained.config, trained.corpus
    longest, options = longest_length(config), config.evaluate
    count = min(SEGMENTS, options.segments)
    segments, documents = extrapolation_segments(corpus, count, longest, options.documents)
    objective, scored = build_objective(config.objective), PASSAGE - CUE

    def losses(text: Int[np.ndarray, "N T"]) -> tuple[Float[np.ndarray, "N"], Int[np.ndarray, "N"]]:
        """Return the nats and the number of the targets of each row."""
        tokens, targets = objective.of_evaluation(text, corpus.vocabulary)
        nll = token_losses(trained.gpt, tokens, targets, scored)
        return nll.sum(axis=1), (targets[:, -scored:] != UNSCORED).sum(axis=1)

    with trained.progress.phase("evaluating repeated text"), in_precision(config):
        for window, distances in places:
            text = segments[:, -window - 1 :]
            without, tokens = losses(text)
            for distance in distances:
                nll, _ = losses(repeated(text, distance))
                for document in np.unique(documents):
                    at = documents == document
                    yield {
                        "multiple": f"{distance / config.context_length:g}",
                        "distance": distance,
                        "window": window,
                        "document": int(document),
                        "nll": float(nll[at].sum()),
                        "nll_without": float(without[at].sum()),
                        "tokens": int(tokens[at].sum()),
                    }


def windows(length: int, longest: int) -> list[tuple[int, list[int]]]:
    """Return the windows up to `longest`, in tokens, and the distances from copy to passage in each.

    A window of L has L/2, L/4, ... down to the length of a passage; a longer window has half its length.
    """
    halves = [length >> i for i in range(1, length.bit_length()) if length % 2**i == 0]
    places = [(length, [half for half in halves if half >= PASSAGE])]
    while places[-1][0] < longest:
        window = 2 * places[-1][0]
        places.append((window, [window // 2] if window // 2 >= PASSAGE else []))
    return [(window, distances) for window, distances in places if distances and window <= longest]


def repeated(text: Int[np.ndarray, "N T"], distance: int) -> Int[np.ndarray, "N T"]:
    """Return the rows with a copy of their last PASSAGE tokens `distance` tokens before these."""
    copied = text.copy()
    copied[:, -distance - PASSAGE : copied.shape[1] - distance] = text[:, -PASSAGE:]
    return copied


def _change(grouped: Any) -> Numbers:
    """Return the loss with the copy less that without it, in nats per token, for each group of rows."""
    sums = grouped[["nll", "nll_without", "tokens"]].sum(skipna=False)
    return (sums.nll - sums.nll_without) / sums.tokens


def _reported(multiples: Iterable[float]) -> list[float]:
    """Return the longest distance within a window of L, if there is one, and the longest of all."""
    ordered = sorted(set(multiples))
    return [*dict.fromkeys([*[k for k in ordered if k < 1][-1:], *ordered[-1:]])]


def _points(of_arm: DataFrame) -> Iterator[Point]:
    """Yield an arm's change at each distance, with an interval over seeds and documents."""
    for k, at in of_arm.groupby("multiple"):
        sums = at.groupby("seed")[["nll", "nll_without", "tokens"]].sum()
        change = _change(at.groupby("seed"))
        share = at.tokens / at.seed.map(sums.tokens) / len(sums)
        added = (at.nll - at.nll_without) / at.tokens - at.seed.map(change)
        by_document = [(part * share).groupby(at.document).sum().tolist() for part in (added, 1)]
        with_copy, without = ((side / sums.tokens).to_dict() for side in (sums.nll, sums.nll_without))
        gap = paired(with_copy, without, noise_of_draws(*by_document))
        assert gap is not None
        keys = {"multiple": k, "documents": gap.documents}
        yield Point(gap.n, gap.mean, gap.half_width, change.min(), change.max(), k, keys)


def _floor(table: DataFrame) -> str:
    """Return the range over arms of the change if the loss with the copy were 0."""
    sums = table.groupby("arm")[["nll_without", "tokens"]].sum()
    losses = -sums.nll_without / sums.tokens
    return span([number(end, 3) for end in (losses.max(), losses.min())])


def _findings(series: Sequence[Series], table: DataFrame) -> Iterator[str]:
    """Yield a sentence per reported distance: which arms gain by a copy, and how much they could."""
    for k in _reported(table.multiple):
        at = {line.label: point for line in series for point in line.points if point.x == k}
        readings = ((_reading(point), f"{arm} ({number(point.mean, 3)})") for arm, point in at.items())
        parts = phrases((LOWER, NOT_LOWER), readings)
        exact = f"{_floor(table[table.multiple == k])} nats if copied exactly"
        yield f"With a copy {multiple(k)} back ({exact}), {'; '.join(parts)}."


def _reading(change: Point) -> str:
    sure = change.half_width is not None and change.mean + change.half_width < 0
    return LOWER if sure else NOT_LOWER
