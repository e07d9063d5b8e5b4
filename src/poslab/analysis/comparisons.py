"""Arms against the reference, over the seeds that both have."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from poslab.analysis.arms import RESCALING, Arm
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.spread import difference
from poslab.analysis.statistics import EXPLORATORY, FALSE_ALARMS, Difference, normality
from poslab.record.measures import IN_BITS, is_in_bits, multiple, name
from poslab.record.reader import Run

COMPARED = ("loss", "sliding", "context_gain")


@dataclass(frozen=True)
class Comparison:
    """An arm against the reference on one figure; `p_holm` is there for what the verdict claims alone."""

    arm: Arm
    figure: str
    difference: Difference
    p_holm: float | None = None
    normality_p: float | None = None  # of normal differences over the seeds, of the tested figure alone

    @property
    def text_standard_error(self) -> float | None:
        """Over documents; where records do not say these, over segments, and of the tested figure alone."""
        return None if (text := self.difference.text) is None else math.sqrt(text.variance)

    @property
    def reading(self) -> str:
        """What may be said: "lower" or "higher" only of what is tested, and only with an interval.

        Noise is an interval that holds 0. Where it leaves 0 out but the corrected p is no finding, the arms
        are not separated.
        """
        difference = self.difference
        if difference.half_width is None:
            return "one seed"
        if difference.p is None:
            return "no spread"
        if abs(difference.mean) <= difference.half_width:
            return "within noise"
        if self.p_holm is None:
            return "descriptive"
        if self.p_holm >= FALSE_ALARMS:
            return f"not separated ({difference.n} seeds)"
        few = " (exploratory)" if difference.n < EXPLORATORY else ""
        return ("lower" if difference.mean < 0 else "higher") + few


def comparable(run: Run, reference: Arm, in_bits: bool = False) -> bool:
    """Whether losses mean the same: of one text, in windows of as many tokens, evaluated alike.

    Nats a token take the same tokens, too; bits a byte (`in_bits`) compare tokenizers.
    """
    return unlike(run, reference, in_bits) is None


def unlike(run: Run, reference: Arm, in_bits: bool = False) -> str | None:
    """Why losses of a run do not mean what those of the reference do; None where they do."""

    def evaluation(run: Run) -> object:
        options = run.config.get("evaluate")
        if isinstance(options, dict):
            return {key: value for key, value in options.items() if key not in RESCALING}
        return options

    for other in reference.finished:
        if run.vocabulary != other.vocabulary and not in_bits:
            return "another vocabulary"
        if not (same_text(run, other) if in_bits else run.data_fingerprint == other.data_fingerprint):
            return "another text"
        if run.context_length != other.context_length:
            return f"trained at L = {run.context_length:,}, so scored on other targets"
        if evaluation(run) != evaluation(other):
            return "evaluated with other settings"
    return None


def same_text(run: Run, other: Run) -> bool:
    """Whether two runs read one text; where its tokens differ, by how it was read and its documents."""
    if run.data_fingerprint == other.data_fingerprint:
        return True

    def read(run: Run) -> tuple[object, ...]:
        options = run.config.get("data")
        settings = dict(options) if isinstance(options, dict) else {}
        tokens = settings.pop("vocabulary", None)
        return tokens, settings, run.data_name, run.manifest.corpus.documents

    mine, theirs = read(run), read(other)
    return mine[0] != theirs[0] and mine[1:] == theirs[1:]


def compare(
    everything: Sequence[ArmFigures], reference: ArmFigures, primary: str | None, multiples: tuple[float, ...]
) -> tuple[Comparison, ...]:
    """Every arm's differences from the reference, where their losses mean the same; none corrected yet."""
    tested = 1.0 if primary is None else multiple(primary)
    families = (*COMPARED, *(IN_BITS.values() if is_in_bits(primary) else ()))
    columns = [f"{family}_{name(k)}" for family in families for k in multiples if k >= min(1.0, tested)]
    comparisons: list[Comparison] = []
    for item in everything:
        if item is reference:
            continue
        alike = {
            in_bits: all(comparable(run, reference.arm, in_bits) for run in item.arm.finished)
            for in_bits in (False, True)
        }
        for column in (column for column in columns if alike[is_in_bits(column)]):
            is_tested = column == primary
            between = difference(item, reference, column, by_segment=is_tested)
            if between is not None:
                mine, theirs = item.by_seed(column), reference.by_seed(column)
                seeds = sorted(mine.keys() & theirs.keys()) if is_tested else []
                normal = normality([mine[seed] - theirs[seed] for seed in seeds])
                comparisons.append(Comparison(item.arm, column, between, normality_p=normal))
    return tuple(comparisons)


@dataclass(frozen=True)
class Pair:
    """Arm less other over the seeds that both have; `p_holm` is corrected over all that a verdict claims."""

    arm: Arm
    other: Arm
    difference: Difference
    p_holm: float | None = None

    @property
    def separated(self) -> bool:
        return self.p_holm is not None and self.p_holm < FALSE_ALARMS


@dataclass(frozen=True)
class Rank:
    """The places that an arm may have, 1 the lowest loss: only arms that are separated from it bound them."""

    best: int
    worst: int


def pairs(everything: Sequence[ArmFigures], reference: ArmFigures, primary: str | None) -> tuple[Pair, ...]:
    """All pairs of the arms whose figure means the same as the reference's; none corrected yet."""
    if primary is None:
        return ()
    alike = [
        item
        for item in everything
        if all(comparable(run, reference.arm, is_in_bits(primary)) for run in item.arm.finished)
    ]
    return tuple(
        Pair(one.arm, other.arm, between)
        for one, other in combinations(alike, 2)
        if (between := difference(one, other, primary)) is not None
    )


def mean_ranks(everything: Sequence[ArmFigures], figure: str) -> dict[str, float]:
    """Each arm's mean rank in `figure` over the seeds that all ranked arms have, the lowest loss first.

    Arms without the figure have no rank; equal losses share theirs. Empty without a common seed.
    """
    by_arm = {item.arm.label: values for item in everything if (values := item.by_seed(figure))}
    seeds = set.intersection(*(set(values) for values in by_arm.values())) if by_arm else set()
    if not seeds:
        return {}

    def rank(label: str, seed: int) -> float:
        mine = by_arm[label][seed]
        losses = [values[seed] for values in by_arm.values()]
        return sum(loss < mine for loss in losses) + (1 + sum(loss == mine for loss in losses)) / 2

    return {label: sum(rank(label, seed) for seed in seeds) / len(seeds) for label in by_arm}


def ranks(pairs: Sequence[Pair]) -> dict[str, Rank]:
    """The rank of each arm by label, of those that share two seeds or more with another arm."""
    compared = [pair for pair in pairs if pair.difference.n >= 2]
    labels = dict.fromkeys(arm.label for pair in compared for arm in (pair.arm, pair.other))
    below, above = dict.fromkeys(labels, 0), dict.fromkeys(labels, 0)
    for pair in compared:
        if pair.separated:
            ends = pair.arm.label, pair.other.label
            better, worse = ends if pair.difference.mean < 0 else ends[::-1]
            below[worse] += 1
            above[better] += 1
    return {label: Rank(1 + below[label], len(labels) - above[label]) for label in labels}
