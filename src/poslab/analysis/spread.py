"""What else the tested differences rest on beside their interval over seeds: the text, and normal seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from poslab.analysis.comparisons import Comparison
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.statistics import normality
from poslab.record.losses import Stretch
from poslab.record.measures import IN_BITS, family, is_in_bits, multiple
from poslab.record.reader import Run

FEWEST_SEGMENTS = 8  # of fewer, a standard error is as uncertain as what it is of
PROTOCOLS = {"loss": "non_overlapping", "sliding": "sliding"}  # that a family of losses is measured in
PROTOCOLS |= {IN_BITS[nats]: protocol for nats, protocol in PROTOCOLS.items()}

Segments = Mapping[str, Stretch]


def with_spread(
    comparisons: Sequence[Comparison],
    everything: Sequence[ArmFigures],
    reference: ArmFigures,
    primary: str | None,
) -> tuple[Comparison, ...]:
    """The comparisons, those of the tested figure with their standard error over text and their normality."""
    by_label = {item.arm.label: item for item in everything}

    def spread(item: Comparison) -> Comparison:
        if item.figure != primary:
            return item
        mine, theirs = by_label[item.arm.label].by_seed(primary), reference.by_seed(primary)
        seeds = sorted(mine.keys() & theirs.keys())
        return replace(
            item,
            text_standard_error=text_standard_error(
                item.arm.finished, reference.arm.finished, primary, seeds
            ),
            normality_p=normality([mine[seed] - theirs[seed] for seed in seeds]),
        )

    return tuple(map(spread, comparisons))


def text_standard_error(
    arm: Sequence[Run], reference: Sequence[Run], figure: str, seeds: Sequence[int]
) -> float | None:
    """The standard error of a difference over segments of text, from `seeds` of both arms.

    Segments are paired, and averaged over the seeds: what is left is what other text would change, not what
    another training would. Only segments count that have the same tokens in every run. They may differ in
    length, so the error is that of a ratio of sums (Cochran, Sampling Techniques, 1977, section 2.11), which
    for equal lengths is the standard deviation of their means over the root of their number. None with fewer
    than 8 segments. `figure` is a loss, such as sliding_8x.
    """
    runs = [(run, side) for side, runs in ((1, arm), (-1, reference)) for run in runs if run.seed in seeds]
    signed = [(_measured(run, figure), side) for run, side in runs]
    if not signed:
        return None
    tokens = {
        segment: stretch.tokens
        for segment, stretch in signed[0][0].items()
        if all(segment in one and one[segment].tokens == stretch.tokens for one, _ in signed)
    }
    if len(tokens) < FEWEST_SEGMENTS:
        return None
    sums = {
        segment: math.fsum(sign * one[segment].nll for one, sign in signed) / len(seeds) for segment in tokens
    }
    sizes: Mapping[str, float] = tokens
    if is_in_bits(figure):
        sizes = {segment: (signed[0][0][segment].bytes or 0) * math.log(2) for segment in tokens}
    whole = math.fsum(sizes.values())
    if not whole:
        return None
    mean = math.fsum(sums.values()) / whole
    squares = math.fsum((sums[segment] - mean * sizes[segment]) ** 2 for segment in tokens)
    error = math.sqrt(squares * len(tokens) / (len(tokens) - 1)) / whole
    return error if math.isfinite(error) else None


def _measured(run: Run, figure: str) -> Segments:
    """The segments of a run that a loss is the mean of."""
    return run.segments.get((PROTOCOLS[family(figure)], multiple(figure)), {})
