"""All claims of a verdict, as one family of tests.

At most 5 % of studies claim anything that is false, whether no arms differ or only some do.
Holm's procedure controls the family-wise error whichever hypotheses are true and however the tests depend on
each other.
"""

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace

from poslab.analysis.comparisons import Comparison
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.protocols import loss_at_length
from poslab.analysis.statistics import FALSE_ALARMS, holm, p_value
from poslab.record.measures import multiple, name

TARGET = ""  # the suffix of the verdict's target: the reference's loss at 75 % of its budget
TIME = f"tokens_to_target{TARGET}_ratio"

# The parts of the family, and their shares of its false alarms. The tested figure against the reference has
# three fifths. With five seeds and six arms, 80 % of studies then find an arm that differs by three seed
# deviations; with the whole share it would be 90 %, with equal shares for 31 tests 46 %. Holm's procedure
# passes a test's share on to the others once the test is significant.
REFERENCE, RANKS = "tested figure against the reference", "tested figure between other arms"
OTHER = "other figures"
SHARES = {REFERENCE: 3.0, RANKS: 1.0, OTHER: 1.0}


@dataclass(frozen=True)
class Claim:
    """One test of the family: an arm against another (or against 0) on a figure. Arms are given by label."""

    part: str  # a key of SHARES
    figure: str
    arm: str
    against: str | None
    n: int
    p: float
    weight: float = 0.0  # its share of the false alarms; the shares sum to 1
    p_holm: float = 1.0

    @property
    def holds(self) -> bool:
        return self.p_holm < FALSE_ALARMS


def claims(
    all_figures: Sequence[ArmFigures],
    reference: ArmFigures,
    primary: str | None,
    comparisons: Sequence[Comparison],
    pairs: Sequence[Comparison],
    multiples: Sequence[float],
    families: int,
    groups: Sequence[tuple[Sequence[ArmFigures], ArmFigures]],
) -> tuple[tuple[Claim, ...], tuple[Comparison, ...], tuple[Comparison, ...]]:
    """Return the tests behind a verdict, corrected together, and `comparisons` and `pairs` with corrected p.

    The tests compare the tested figure between all arms of each group, which has its own reference; in the
    group of `reference`, the loss at L and the time to the target at 75 % of its budget, with those of
    `reference`; and context gain at the longest length with 0. Those without p (one seed, no spread) are left
    out. With several `families`, one per text, each has an equal share of the false alarms (Bonferroni).
    """
    label = reference.arm.label
    at_length = None if primary is None or multiple(primary) == 1 else loss_at_length(reference, primary)
    references = {base.arm.label for _, base in groups}
    group = [item for arms, base in groups if base is reference for item in arms]
    compared = {item.arm.label for item in group}
    tests = [*_between_arms(pairs, references), *_gains(all_figures, multiples)]
    tests += [
        Claim(OTHER, item.figure, item.arm.label, label, item.difference.n, item.difference.p)
        for item in comparisons
        if item.figure == at_length and item.arm.label in compared and item.difference.p is not None
    ]
    tests += _times(group, reference)
    count = Counter(test.part for test in tests)
    whole = sum(share for part, share in SHARES.items() if count[part])
    weights = {i: SHARES[test.part] / count[test.part] / whole for i, test in enumerate(tests)}
    adjusted = holm({i: test.p for i, test in enumerate(tests)}, weights)
    shared = {i: min(1.0, families * p) for i, p in adjusted.items()}
    family = tuple(replace(test, weight=weights[i], p_holm=shared[i]) for i, test in enumerate(tests))
    by_ends = {(test.figure, *sorted((test.arm, test.against or ""))): test.p_holm for test in family}

    def corrected(items: Iterable[Comparison]) -> tuple[Comparison, ...]:
        ends = ((item, sorted((item.arm.label, item.against.label))) for item in items)
        return tuple(replace(item, p_holm=by_ends.get((item.figure, *labels))) for item, labels in ends)

    return family, corrected(comparisons), corrected(pairs)


def _between_arms(pairs: Sequence[Comparison], references: Set[str]) -> list[Claim]:
    """Return the tests of the primary figure between arms; a reference is always second."""
    tests = []
    for pair in pairs:
        ends = pair.arm.label, pair.against.label
        arm, against = ends[::-1] if ends[0] in references else ends
        if pair.difference.p is not None:
            part = REFERENCE if against in references else RANKS
            tests.append(Claim(part, pair.figure, arm, against, pair.difference.n, pair.difference.p))
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
        Claim(OTHER, gain(longest), label, None, len(by_seed), p)
        for label, by_seed in values
        if len(by_seed) > 1 and (p := p_value(by_seed)) is not None
    ]


def _times(all_figures: Sequence[ArmFigures], reference: ArmFigures) -> list[Claim]:
    """Return the tests of times to the target; an unknown p counts as 1, to keep the family's size fixed."""
    return [
        Claim(OTHER, TIME, item.arm.label, reference.arm.label, over.n, 1.0 if over.p is None else over.p)
        for item in all_figures
        if item is not reference and (over := item.ratios.get(TARGET)) is not None and over.n > 1
    ]
