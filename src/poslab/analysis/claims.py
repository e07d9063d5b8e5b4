"""All that a verdict claims, as one family of tests.

At most 5 % of studies in which nothing differs, or in which only some arms do, claim anything that is not so:
Holm's procedure keeps the family-wise error whatever is true of the other tests and however they depend on
each other.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum

from poslab.analysis.comparisons import Comparison, Pair
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.protocols import loss_at_length
from poslab.analysis.statistics import FALSE_ALARMS, holm, p_value
from poslab.record.measures import multiple, name

TARGET = ""  # the target that the verdict speaks of, at 75 % of the reference's budget, by its suffix
TIME = f"tokens_to_target{TARGET}_ratio"


class Group(Enum):
    """What a test is for, with its share of the family's false alarms.

    The tested figure against the reference keeps three fifths. With five seeds, a study of six arms then
    finds three seed deviations of one arm in 80 % of the studies; with all of it in 90 %, with equal shares
    of 31 tests in 46 %. Holm's procedure hands a share on once its test has found something.
    """

    REFERENCE = "tested figure against the reference", 3.0
    RANKS = "tested figure between other arms", 1.0
    OTHER = "other figures", 1.0

    def __init__(self, label: str, share: float) -> None:
        self.label = label
        self.share = share


@dataclass(frozen=True)
class Claim:
    """One test of the family: an arm against another (or against 0) on a figure, of arms by their labels."""

    group: Group
    figure: str
    arm: str
    against: str | None
    n: int
    p: float
    weight: float = 0.0  # its share of the false alarms; all shares make 1
    p_holm: float = 1.0

    @property
    def holds(self) -> bool:
        return self.p_holm < FALSE_ALARMS


def claims(
    all_figures: Sequence[ArmFigures],
    reference: ArmFigures,
    primary: str | None,
    comparisons: Sequence[Comparison],
    pairs: Sequence[Pair],
    multiples: Sequence[float],
    families: int = 1,
    groups: Sequence[tuple[Sequence[ArmFigures], ArmFigures]] = (),
) -> tuple[tuple[Claim, ...], tuple[Comparison, ...], tuple[Pair, ...]]:
    """Return every test that a verdict rests on, corrected together; comparisons and pairs with corrected p.

    The tested figure between all arms of a group, which has a reference of its own (without `groups`, all
    arms are one); in the reference's group the loss at L, and the time to the target at 75 % of its budget,
    against it; context gain at the longest length against 0. A test without a p value (one seed, no spread)
    is not in the family. A study that has several such `families`, one for each text, gives each the same
    share of its false alarms (Bonferroni).
    """
    label = reference.arm.label
    at_length = None if primary is None or multiple(primary) == 1 else loss_at_length(reference, primary)
    groups = groups or [(all_figures, reference)]
    references = {of_group.arm.label for _, of_group in groups}
    beside = [item for group, of_group in groups if of_group is reference for item in group]
    compared = {item.arm.label for item in beside}
    tests = [*_between_arms(pairs, references, primary), *_gains(all_figures, multiples)]
    tests += [
        Claim(Group.OTHER, item.figure, item.arm.label, label, item.difference.n, item.difference.p)
        for item in comparisons
        if item.figure == at_length and item.arm.label in compared and item.difference.p is not None
    ]
    tests += _times(beside, reference)
    count = {group: sum(test.group is group for test in tests) for group in Group}
    whole = sum(group.share for group in Group if count[group])
    weights = {i: test.group.share / count[test.group] / whole for i, test in enumerate(tests)}
    adjusted = holm({i: test.p for i, test in enumerate(tests)}, weights)
    shared = {i: min(1.0, families * p) for i, p in adjusted.items()}
    family = tuple(replace(test, weight=weights[i], p_holm=shared[i]) for i, test in enumerate(tests))
    by_ends = {(test.figure, *sorted((test.arm, test.against or ""))): test.p_holm for test in family}

    def corrected(figure: str | None, arm: str, against: str) -> float | None:
        return None if figure is None else by_ends.get((figure, *sorted((arm, against))))

    return (
        family,
        tuple(replace(item, p_holm=corrected(item.figure, item.arm.label, label)) for item in comparisons),
        tuple(replace(pair, p_holm=corrected(primary, pair.arm.label, pair.against.label)) for pair in pairs),
    )


def _between_arms(pairs: Sequence[Pair], references: Set[str], primary: str | None) -> list[Claim]:
    """Test the primary figure between arms; a reference is always second."""
    tests = []
    for pair in pairs:
        ends = pair.arm.label, pair.against.label
        arm, against = ends[::-1] if ends[0] in references else ends
        if primary is not None and pair.difference.p is not None:
            group = Group.REFERENCE if against in references else Group.RANKS
            tests.append(Claim(group, primary, arm, against, pair.difference.n, pair.difference.p))
    return tests


def longest_gain(all_figures: Sequence[ArmFigures], multiples: Sequence[float]) -> float | None:
    """Return the longest multiple of L past 1 at which an arm has a context gain, or None."""
    return max(
        (k for k in multiples if k > 1 and any(gain(k) in item.figures for item in all_figures)), default=None
    )


def gain(k: float) -> str:
    """Return the column of context gain at a multiple of L."""
    return f"context_gain_{name(k)}"


def _gains(all_figures: Sequence[ArmFigures], multiples: Sequence[float]) -> list[Claim]:
    longest = longest_gain(all_figures, multiples)
    if longest is None:
        return []
    values = [(item.arm.label, list(item.by_seed(gain(longest)).values())) for item in all_figures]
    return [
        Claim(Group.OTHER, gain(longest), label, None, len(by_seed), p)
        for label, by_seed in values
        if len(by_seed) > 1 and (p := p_value(by_seed)) is not None
    ]


def _times(all_figures: Sequence[ArmFigures], reference: ArmFigures) -> list[Claim]:
    """Test times to the target; an unknown ratio stays in the family, with p = 1, to keep its size fixed."""
    return [
        Claim(
            Group.OTHER, TIME, item.arm.label, reference.arm.label, over.n, 1.0 if over.p is None else over.p
        )
        for item in all_figures
        if item is not reference and (over := item.ratios.get(TARGET)) is not None and over.n > 1
    ]
