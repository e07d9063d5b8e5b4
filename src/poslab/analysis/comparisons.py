"""Comparisons of arms with the reference, over the seeds that both have."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from poslab.analysis.arms import RESCALING, Arm
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.spread import difference
from poslab.analysis.statistics import EXPLORATORY, FALSE_ALARMS, Difference, normality
from poslab.config.schema import CAUSAL
from poslab.record.measures import IN_BITS, is_in_bits, multiple, name
from poslab.record.reader import Run
from poslab.record.summary import is_pretrained

COMPARED = ("loss", "sliding", "context_gain")


@dataclass(frozen=True)
class Comparison:
    """The figure of `arm` less that of `against`; `p_holm` is set only for tests in the verdict's family."""

    arm: Arm
    against: Arm
    figure: str
    difference: Difference
    p_holm: float | None = None
    normality_p: float | None = None  # of the test that the seeds' differences are normal; tested figure only
    beside: Difference | None = None  # the same arms in the other protocol, for pairs on the tested figure
    # The larger p of two tests (the differences are equal; `beside` is 0), corrected over all pairs.
    change_p_holm: float | None = None

    @property
    def text_standard_error(self) -> float | None:
        """The standard error over documents; without documents, over segments of the tested figure only."""
        return None if (text := self.difference.text) is None else math.sqrt(text.variance)

    @property
    def ordered(self) -> tuple[str, str]:
        """The labels of the two arms, the one with the lower mean first."""
        labels = self.arm.label, self.against.label
        return labels if self.difference.mean < 0 else labels[::-1]

    @property
    def separated(self) -> bool:
        return self.p_holm is not None and self.p_holm < FALSE_ALARMS

    @property
    def changes_places(self) -> bool:
        """Whether the protocols order the means of the two arms differently, beyond noise.

        This requires opposite signs, and p < 0.05 both for the order in the other protocol and for the change
        from one protocol to the other. The order in the tested figure may be undecided. If the other order
        could be too, half of all pairs that only the tested figure separates would count.
        """
        if self.beside is None or self.change_p_holm is None:
            return False
        return self.difference.mean * self.beside.mean < 0 and self.change_p_holm < FALSE_ALARMS

    @property
    def reading(self) -> str:
        """The finding in words: "lower" or "higher" only if the corrected test separates the arms.

        Noise: the interval contains 0. Not separated: it excludes 0, but the corrected p is not significant.
        """
        difference = self.difference
        if difference.half_width is None:
            return "one seed"
        if difference.p is None:
            return "no spread"
        if not difference.decided:
            return "within noise"
        if self.p_holm is None:
            return "descriptive"
        if not self.separated:
            return f"not separated ({difference.n} seeds)"
        suffix = " (exploratory)" if difference.n < EXPLORATORY else ""
        return ("lower" if difference.mean < 0 else "higher") + suffix


def comparable(run: Run, reference: Arm, in_bits: bool = False) -> bool:
    """Return whether losses compare: same objective, text, training length and evaluation settings.

    Nats per token also require the same vocabulary. Bits per byte (`in_bits`) compare across tokenizers.
    """
    return unlike(run, reference, in_bits) is None


def unlike(run: Run, reference: Arm, in_bits: bool = False) -> str | None:
    """Return why losses of a run do not compare with those of the reference, or None if they do."""

    def evaluation(run: Run) -> dict[str, object]:
        options = run.config.get("evaluate") or {}
        return {key: value for key, value in options.items() if key not in RESCALING}

    for base in reference.finished:
        if scored_by(run) != scored_by(base):
            return "trained for another objective"
        if run.vocabulary != base.vocabulary and not in_bits:
            return "another vocabulary"
        if not (same_text(run, base) if in_bits else run.data_fingerprint == base.data_fingerprint):
            return "another text"
        if run.context_length != base.context_length:
            return f"trained at L = {run.context_length:,}, so scored on other targets"
        if evaluation(run) != evaluation(base):
            return "evaluated with other settings"
    return None


def alike(arms: Iterable[ArmFigures], reference: Arm, in_bits: bool) -> list[ArmFigures]:
    """Return the arms of which all finished runs compare with the reference's."""
    return [item for item in arms if all(comparable(run, reference, in_bits) for run in item.arm.finished)]


def origin_of(run: Run, name: str = "run") -> object:
    """Return a fact of the finished run from which this one started; None if it had initial weights."""
    return getattr(run.manifest.origin, name, None)


def tokens_per_parameter(run: Run) -> float | None:
    """Return training tokens per parameter, including those of the run from which this one started."""
    if is_pretrained(run) or not run.manifest.parameters:
        return None
    before = origin_of(run, "tokens")
    return (run.budget + (before if isinstance(before, int) else 0)) / run.manifest.parameters


def scored_by(run: Run) -> str:
    """Return a key that is equal for runs with the same objective settings, except `offset`."""
    options = {**CAUSAL, **(run.config.get("objective") or {})}
    return json.dumps({key: value for key, value in options.items() if key != "offset"}, sort_keys=True)


def same_text(run: Run, reference: Run) -> bool:
    """Return whether two runs read the same text; across tokenizers, compare its settings and documents."""
    if run.data_fingerprint == reference.data_fingerprint:
        return True

    def read(run: Run) -> tuple[object, ...]:
        settings = dict(run.config.get("data") or {})
        tokens = settings.pop("vocabulary", None)
        return tokens, settings, run.data_name, run.manifest.corpus.documents

    sources, base = read(run), read(reference)
    return sources[0] != base[0] and sources[1:] == base[1:]


def compare(
    all_figures: Sequence[ArmFigures],
    reference: ArmFigures,
    primary: str | None,
    multiples: tuple[float, ...],
) -> tuple[Comparison, ...]:
    """Return each arm's differences from the reference where losses compare, without corrected p."""
    tested = 1.0 if primary is None else multiple(primary)
    families = (*COMPARED, *(IN_BITS.values() if is_in_bits(primary) else ()))
    columns = [f"{family}_{name(k)}" for family in families for k in multiples if k >= min(1.0, tested)]
    rest = [item for item in all_figures if item is not reference]
    compared = {in_bits: alike(rest, reference.arm, in_bits) for in_bits in (False, True)}
    comparisons = []
    for item, column in product(rest, columns):
        if item not in compared[is_in_bits(column)]:
            continue
        if (between := difference(item, reference, column, by_segment=column == primary)) is None:
            continue
        values, base = item.by_seed(column), reference.by_seed(column)
        seeds = sorted(values.keys() & base.keys()) if column == primary else []
        normal = normality([values[seed] - base[seed] for seed in seeds])
        comparisons.append(Comparison(item.arm, reference.arm, column, between, normality_p=normal))
    return tuple(comparisons)


@dataclass(frozen=True)
class Rank:
    """The possible ranks of an arm (1 is the lowest loss), bounded by the arms that are separated from it."""

    best: int
    worst: int


def pairs(
    all_figures: Sequence[ArmFigures], reference: ArmFigures, primary: str | None
) -> tuple[Comparison, ...]:
    """Return all pairs of arms with losses that compare with the reference's, without corrected p."""
    if primary is None:
        return ()
    compared = alike(all_figures, reference.arm, is_in_bits(primary))
    return tuple(
        Comparison(first.arm, second.arm, primary, between)
        for first, second in combinations(compared, 2)
        if (between := difference(first, second, primary)) is not None
    )


def mean_ranks(all_figures: Sequence[ArmFigures], figure: str) -> dict[str, float]:
    """Return each arm's mean rank in `figure` over the seeds that all ranked arms share; rank 1 is lowest.

    Arms without the figure have no rank, and equal losses share one. Empty if the arms share no seed.
    """
    import pandas  # takes a second

    by_arm = {item.arm.label: values for item in all_figures if (values := item.by_seed(figure))}
    means = pandas.DataFrame(by_arm).dropna().rank(axis="columns").mean().dropna()
    return {str(label): float(mean) for label, mean in means.items()}


def ranks(pairs: Sequence[Comparison]) -> dict[str, Rank]:
    """Return, by label, the rank of each arm that shares at least two seeds with another."""
    compared = [pair for pair in pairs if pair.difference.n >= 2]
    labels = dict.fromkeys(arm.label for pair in compared for arm in (pair.arm, pair.against))
    below, above = dict.fromkeys(labels, 0), dict.fromkeys(labels, 0)
    for pair in compared:
        if pair.separated:
            better, worse = pair.ordered
            below[worse] += 1
            above[better] += 1
    return {label: Rank(1 + below[label], len(labels) - above[label]) for label in labels}
