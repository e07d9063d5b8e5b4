"""Arms at several budgets or sizes: their gaps to the reference at each, changes of place, and trends.

A rung is one size with one budget. A contender is what the arms of a rung differ in, such as the scheme. A
gap is a contender's loss less the reference's in the same rung, paired by seed on the same targets.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean, geometric_mean
from typing import Any

import numpy as np
from scipy.linalg import null_space

from poslab.analysis.arms import RATES, settings, shared_labels
from poslab.analysis.comparisons import alike, tokens_per_parameter
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.protocols import loss_at_length
from poslab.analysis.spread import difference, text_noise
from poslab.analysis.statistics import Difference, Sum, Variance, holm, weighted_sum
from poslab.record.measures import is_in_bits, multiple
from poslab.record.reader import Run

SIZE = ("model.layers", "model.width", "model.heads")
BUDGET = ("trainer.max_steps", "trainer.batch_size")
# Settings that follow from the size or the budget, or are chosen for each arm.
FOLLOWING = ("trainer.warmup_steps", "trainer.beta2", "evaluate.validations", *RATES)
SAME_SHARE = 1.25  # tokens per parameter within this factor count as equal, since steps are whole numbers
COLLINEAR = 0.95  # from this correlation on, a fit cannot separate compute and tokens per parameter
FEWEST_RUNGS = 3  # needed for a trend


@dataclass(frozen=True, eq=False)
class Rung:
    """One size with one budget; its numbers are those of the reference."""

    reference: str  # a contender
    arms: Mapping[str, ArmFigures]  # by contender, including the reference
    parameters: int
    share: float  # training tokens per parameter
    flops: float  # training compute
    _gaps: dict[tuple[str, str, str], Difference | None] = field(default_factory=dict, repr=False)

    def gap(self, arm: str, against: str, figure: str) -> Difference | None:
        """Return a contender's loss less another's, paired by seed; None if either has none."""
        place = arm, against, figure
        if place not in self._gaps:
            known = arm in self.arms and against in self.arms
            self._gaps[place] = difference(self.arms[arm], self.arms[against], figure) if known else None
        return self._gaps[place]

    def order(self, figure: str) -> list[str]:
        """Return the contenders sorted by mean loss, the lowest first.

        Means are over the seeds that a contender shares with the reference, as for the gaps.
        """
        means = {label: mean for label, item in self.arms.items() if (mean := item.mean(figure)) is not None}
        if self.reference in means:
            gaps = {label: self.gap(label, self.reference, figure) for label in means}
            unpaired = {label: mean - means[self.reference] for label, mean in means.items()}
            means = {label: unpaired[label] if gap is None else gap.mean for label, gap in gaps.items()}
        return sorted(means, key=means.__getitem__)


@dataclass(frozen=True)
class Ladder:
    """The rungs of a study, sorted by compute, the least first."""

    reference: str  # a contender
    contenders: tuple[str, ...]  # in the order of the arms
    rungs: tuple[Rung, ...]
    figures: tuple[str, ...]  # the tested figure, preceded by the loss at L if it is past L

    @property
    def compared(self) -> tuple[str, ...]:
        """The contenders that are compared with the reference in at least one rung."""
        arms = {label for rung in self.rungs for label in rung.arms}
        return tuple(label for label in self.contenders if label in arms and label != self.reference)

    def seeds(self, figure: str) -> list[int]:
        """Return the distinct numbers of seeds behind the gaps to the reference, the smallest first."""
        gaps = (rung.gap(arm, self.reference, figure) for rung in self.rungs for arm in self.compared)
        return sorted({gap.n for gap in gaps if gap is not None})

    @property
    def whole(self) -> Rung:
        """The rung with the most compute among those with the most contenders; later ones may lack some."""
        largest = max(len(rung.arms) for rung in self.rungs)
        return [rung for rung in self.rungs if len(rung.arms) == largest][-1]

    @property
    def sizes(self) -> list[int]:
        """The number of parameters of each size, the smallest first."""
        return sorted({rung.parameters for rung in self.rungs})

    @property
    def shares(self) -> list[list[Rung]]:
        """The rungs grouped by tokens per parameter, within a factor of SAME_SHARE."""
        groups: list[list[Rung]] = []
        for rung in sorted(self.rungs, key=lambda rung: rung.share):
            if groups and rung.share <= SAME_SHARE * groups[-1][0].share:
                groups[-1].append(rung)
            else:
                groups.append([rung])
        return [sorted(group, key=lambda rung: rung.flops) for group in groups]


def rungs_of(arms: Sequence[ArmFigures], base: ArmFigures, primary: str | None) -> Ladder | None:
    """Return the rungs of arms; None if there are fewer than two, or a rung has a contender twice.

    A rung without the reference is left out, and so is an arm with losses that do not compare with the
    reference's there. A study of learning rates has no rungs, since its arms differ in nothing else.
    """
    finished = [item for item in arms if item.rows]
    if not finished or not base.rows or primary is None:
        return None
    names = _contenders(finished)
    reference = names[base.arm.label]
    by_rung: dict[str, dict[str, ArmFigures]] = {}
    for item in finished:
        values = settings(item.arm.runs[0].config)
        members = by_rung.setdefault(json.dumps([values.get(name) for name in (*SIZE, *BUDGET)]), {})
        if names[item.arm.label] in members:
            return None
        members[names[item.arm.label]] = item
    in_bits = is_in_bits(primary)
    rungs = [rung for members in by_rung.values() if (rung := _described(members, reference, in_bits))]
    if len(rungs) < 2:
        return None
    figures = (loss_at_length(base, primary), primary) if multiple(primary) > 1 else (primary,)
    rungs.sort(key=lambda rung: rung.flops)
    return Ladder(reference, tuple(dict.fromkeys(names.values())), tuple(rungs), figures)


def _contenders(items: Sequence[ArmFigures]) -> dict[str, str]:
    """Return each arm's contender by the arm's label."""
    named = shared_labels([_without_rung(item.arm.finished[0]) for item in items], ())
    return {item.arm.label: label for item, label in zip(items, named, strict=True)}


def _without_rung(run: Run) -> Run:
    """Return the run without its rung's settings and without the name of its study."""
    left_out = {*SIZE, *BUDGET, *FOLLOWING}
    config: dict[str, Any] = {
        section: {name: value for name, value in values.items() if f"{section}.{name}" not in left_out}
        if isinstance(values, Mapping)
        else values
        for section, values in run.config.items()
    }
    return replace(run, study="", manifest=run.manifest.updated(config=config))


def _described(arms: Mapping[str, ArmFigures], reference: str, in_bits: bool) -> Rung | None:
    """Return the rung of these arms; None without a comparison, or if its compute is not on record."""
    if (base := arms.get(reference)) is None:
        return None
    compared = alike(arms.values(), base.arm, in_bits)
    run, flops = base.arm.finished[0], base.mean("flops")
    share = tokens_per_parameter(run)
    if len(compared) < 2 or flops is None or share is None or run.manifest.parameters is None:
        return None
    members = {label: item for label, item in arms.items() if item in compared}
    return Rung(reference, members, run.manifest.parameters, share, flops)


@dataclass(frozen=True)
class Crossing:
    """Two contenders: the gaps between them in two rungs have opposite signs and intervals that exclude 0."""

    arm: str
    against: str
    before: Rung
    after: Rung
    gap_before: Difference
    gap_after: Difference
    p_holm: float  # of the null that not both signs hold, corrected over all pairs of contenders and of rungs


def crossings(rungs: Ladder, figure: str) -> tuple[tuple[Crossing, ...], int]:
    """Return the crossings of every pair of contenders, and how many pairs of gaps were examined.

    A crossing lies between a rung with a decided gap and the next rung with one. Its p is the larger p of the
    two gaps (an intersection-union test, Berger 1982), corrected over all examined pairs of gaps.
    """
    crossed: dict[tuple[str, str, int, int], tuple[Difference, Difference]] = {}
    tests: dict[tuple[str, str, int, int], float] = {}
    for arm, against in combinations((*rungs.compared, rungs.reference), 2):
        gaps = {i: gap for i, rung in enumerate(rungs.rungs) if (gap := rung.gap(arm, against, figure))}
        for (i, first), (j, second) in combinations(gaps.items(), 2):
            opposite = first.mean * second.mean < 0
            p = [1.0 if gap.p is None or not opposite else gap.p for gap in (first, second)]
            tests[arm, against, i, j] = max(p)
            between = [gap for k, gap in gaps.items() if i < k < j and gap.decided]
            if opposite and first.decided and second.decided and not between:
                crossed[arm, against, i, j] = first, second
    adjusted = holm(tests)
    listed = tuple(
        Crossing(arm, against, rungs.rungs[i], rungs.rungs[j], *pair, adjusted[arm, against, i, j])
        for (arm, against, i, j), pair in crossed.items()
    )
    return listed, len(tests)


def agreement(rungs: Ladder, rung: Rung, figure: str) -> dict[str, int]:
    """Count the pairs of contenders that a rung orders by mean as `Ladder.whole` does, and all pairs.

    Also count both among the pairs that `Ladder.whole` decides.
    """
    same = {True: 0, False: 0}
    pairs = {True: 0, False: 0}
    for arm, against in combinations(rungs.contenders, 2):
        gap, whole = (member.gap(arm, against, figure) for member in (rung, rungs.whole))
        if gap is not None and whole is not None:
            pairs[whole.decided] += 1
            same[whole.decided] += gap.mean * whole.mean > 0
    every = {"same": sum(same.values()), "pairs": sum(pairs.values())}
    return every | {"same_decided": same[True], "pairs_decided": pairs[True]}


@dataclass(frozen=True)
class Trend:
    """Fit 1 of a gap Delta by compute C and tokens per parameter: Delta = a + b ln(C / C0) + c ln(D / N)."""

    arm: str
    per_tenfold: Difference  # b ln 10: nats per tenfold compute
    per_tenfold_share: Difference | None  # c ln 10, if the fit can separate D / N from compute
    steady: bool  # whether b keeps its sign without any one size (with fewer than three sizes, any one rung)
    first: Difference  # the gap at the rung with the least compute; if c is fitted, among rungs of one share
    last: Difference  # the gap at the rung with the most compute among the same rungs
    change: Difference  # from the first to the last
    residual: float | None  # root mean square residual of the fit, in nats; None with as many terms as rungs
    flops_from: float  # compute of the first rung in the fit
    flops_to: float

    @property
    def along_a_line(self) -> bool:
        """Whether the interval of b excludes 0, and b is steady."""
        return self.steady and self.per_tenfold.decided

    @property
    def seen(self) -> bool:
        """Whether there is a trend: along a line, or, if b is steady, a change that exceeds its noise."""
        return self.along_a_line or (self.steady and self.change.decided)

    @property
    def reading(self) -> str:
        """The trend in words."""
        if self.per_tenfold.half_width is None:
            return "one seed"
        if not self.seen:
            return "no trend seen"
        if self.first.decided and self.last.decided and self.first.mean * self.last.mean < 0:
            return "turns"
        by = self.per_tenfold if self.along_a_line else self.change
        return "shrinks" if by.mean * (self.first.mean + self.last.mean) < 0 else "grows"


def trend(rungs: Ladder, arm: str, figure: str) -> Trend | None:
    """Return the trend of a contender's gap over three or more rungs; None with fewer, or equal compute.

    The fit is by least squares, so each coefficient is a weighted sum of the gaps. Its interval includes each
    gap's variance over seeds, and the sum's variance over documents, which all rungs score. If the gaps lie
    farther from the line than these explain, each gap also gets the remaining variance (like studies in a
    meta-regression; DerSimonian and Laird 1986), so that points off a line do not pass for a steep one. A
    percentile bootstrap of seeds and documents covers less than 95 % of the time (dev/trends.py).
    """
    base = rungs.reference
    used = [rung for rung in rungs.rungs if rung.gap(arm, base, figure) is not None]
    if len(used) < FEWEST_RUNGS or len({rung.flops for rung in used}) < 2:
        return None
    columns = design(used, shares_of(rungs))
    excess = _excess(used, arm, figure, columns)
    slope, *rest = (
        _weighted(used, arm, figure, weights).difference(
            *(Variance(part.variance * float(weights @ weights), part.freedom) for part in excess)
        )
        for weights in _weights(columns)[1:]
    )
    same = max(([rung for rung in part if rung in used] for part in rungs.shares), key=len)
    ends = [(same if rest and len(same) > 1 else used)[i] for i in (0, -1)]
    first, last = (rung.gap(arm, base, figure) for rung in ends)
    assert first is not None
    assert last is not None
    return Trend(
        arm,
        slope,
        next(iter(rest), None),
        _steady(rungs, used, arm, figure, slope.mean),
        first,
        last,
        _weighted(ends, arm, figure, (-1.0, 1.0)).difference(),
        _residual(used, arm, figure, columns),
        used[0].flops,
        used[-1].flops,
    )


def shares_of(rungs: Ladder) -> dict[Rung, float]:
    """Return tokens per parameter by rung, with one number for rungs in the same group of `Ladder.shares`."""
    return {rung: geometric_mean(near.share for near in group) for group in rungs.shares for rung in group}


def design(used: Sequence[Rung], shares: Mapping[Rung, float]) -> np.ndarray:
    """Return the columns 1, ln(C / C0) and, if a fit can separate it, ln(D / N), with a row per rung."""
    compute = np.log([rung.flops / used[-1].flops for rung in used])
    share = np.log([shares[rung] for rung in used])
    columns = [np.ones(len(used)), compute]
    if len(used) > FEWEST_RUNGS and np.ptp(share) > 0 and abs(np.corrcoef(compute, share)[0, 1]) < COLLINEAR:
        columns.append(share)
    return np.stack(columns, axis=1)


def _weights(columns: np.ndarray) -> np.ndarray:
    """Return the weights of the gaps in each coefficient per tenfold, with a row per coefficient."""
    return np.asarray(np.linalg.pinv(columns) * math.log(10))


def _weighted(used: Sequence[Rung], arm: str, figure: str, weights: Iterable[float]) -> Sum:
    """Return a weighted sum of the gaps to the reference, each over the seeds that its two runs share."""
    groups, scored = [], list[tuple[ArmFigures, str, float, set[int]]]()
    for rung, weight in zip(used, map(float, weights), strict=True):
        item, reference = rung.arms[arm], rung.arms[rung.reference]
        values, base = item.by_seed(figure), reference.by_seed(figure)
        seeds = values.keys() & base.keys()
        groups.append((weight, [values[seed] - base[seed] for seed in sorted(seeds)]))
        scored += [(item, figure, weight, seeds), (reference, figure, -weight, seeds)]
    return weighted_sum(groups, text_noise(scored))


def _excess(used: Sequence[Rung], arm: str, figure: str, columns: np.ndarray) -> list[Variance]:
    """Return the variance of gaps about the line beyond their noise; empty if noise explains all of it."""
    apart = null_space(columns.T).T  # weights of sums that are 0 for gaps on the line
    if not len(apart):
        return []
    sums = [_weighted(used, arm, figure, weights) for weights in apart]
    excess = fmean(total.mean**2 - total.variance for total in sums)
    return [Variance(excess, len(sums))] if excess > 0 else []


def _steady(rungs: Ladder, used: Sequence[Rung], arm: str, figure: str, slope: float) -> bool:
    """Return whether the slope keeps its sign without any one size (with fewer than three, any one rung)."""
    sizes = {rung.parameters for rung in used}
    parts = [[rung for rung in used if rung.parameters == size] for size in sizes]
    for part in parts if len(sizes) >= FEWEST_RUNGS else [[rung] for rung in used]:
        rest = [rung for rung in used if rung not in part]
        if len({rung.flops for rung in rest}) < 2:
            return False
        weights = _weights(design(rest, shares_of(rungs)))
        if _weighted(rest, arm, figure, weights[1]).mean * slope <= 0:
            return False
    return True


def _residual(used: Sequence[Rung], arm: str, figure: str, columns: np.ndarray) -> float | None:
    gaps = [gap.mean for rung in used if (gap := rung.gap(arm, rung.reference, figure)) is not None]
    freedom = len(used) - columns.shape[1]
    if not freedom:
        return None
    return float(np.sqrt(np.sum((gaps - columns @ np.linalg.pinv(columns) @ gaps) ** 2) / freedom))
