"""Every pair of arms on the primary figure, and the ranks that their differences allow."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from poslab.report.analysis.arms import Arm
from poslab.report.analysis.comparisons import comparable
from poslab.report.analysis.estimates import ArmFigures
from poslab.report.analysis.statistics import FALSE_ALARMS, Difference, holm, paired


@dataclass(frozen=True)
class Pair:
    """Arm less other over the seeds that both have; `p_holm` is corrected over every pair of the study."""

    arm: Arm
    other: Arm
    difference: Difference
    p_holm: float | None

    @property
    def separated(self) -> bool:
        return self.p_holm is not None and self.p_holm < FALSE_ALARMS


@dataclass(frozen=True)
class Rank:
    """The places that an arm may have, 1 the lowest loss: only arms that are separated from it bound them."""

    best: int
    worst: int


def pairs(everything: Sequence[ArmFigures], reference: ArmFigures, primary: str | None) -> tuple[Pair, ...]:
    """All pairs of the arms whose figure means the same as the reference's, as one family of tests."""
    if primary is None:
        return ()
    values = [
        (item.arm, by_seed)
        for item in everything
        if (by_seed := item.by_seed(primary))
        and all(comparable(run, reference.arm) for run in item.arm.finished)
    ]
    found = [
        (one, other, difference)
        for (one, mine), (other, theirs) in combinations(values, 2)
        if (difference := paired(mine, theirs)) is not None
    ]
    tests = {str(i): difference.p for i, (_, _, difference) in enumerate(found) if difference.p is not None}
    adjusted = holm(tests)
    return tuple(
        Pair(one, other, difference, adjusted.get(str(i))) for i, (one, other, difference) in enumerate(found)
    )


def ranks(found: Sequence[Pair]) -> dict[str, Rank]:
    """The rank of each arm by label, of those that share two seeds or more with another arm."""
    compared = [pair for pair in found if pair.difference.n >= 2]
    labels = dict.fromkeys(arm.label for pair in compared for arm in (pair.arm, pair.other))
    below, above = dict.fromkeys(labels, 0), dict.fromkeys(labels, 0)
    for pair in compared:
        if pair.separated:
            ends = pair.arm.label, pair.other.label
            better, worse = ends if pair.difference.mean < 0 else ends[::-1]
            below[worse] += 1
            above[better] += 1
    return {label: Rank(1 + below[label], len(labels) - above[label]) for label in labels}
