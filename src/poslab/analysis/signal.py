"""Signal and noise of each figure: the range of the arms against the spread of seeds and last checkpoints.

Heineman et al. 2025 (Signal and Noise) divide the range over models by the standard deviation over the last
checkpoints of one model. The noise over seeds is that of runs that differ in nothing else.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from poslab.analysis.comparisons import alike
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.protocols import counterpart, loss_at_length
from poslab.analysis.results import Results
from poslab.analysis.spread import difference
from poslab.analysis.statistics import FALSE_ALARMS, holm
from poslab.record.measures import is_in_bits, name

CHECKPOINTS = 5  # how many of a run's last validations count
VALIDATION = "validation_loss"  # the only figure that is measured at every checkpoint


@dataclass(frozen=True)
class Signal:
    """A row of signal.csv: signal and noise of a figure over a study's arms, or over those of one rung."""

    parameters: int | None  # of the reference at that size; None if the study has one size and budget
    share: float | None  # its training tokens per parameter, likewise
    figure: str
    spread: float  # range of the arms' means: the highest less the lowest
    seeds: float | None  # standard deviation over seeds, pooled over arms; None with one seed
    checkpoints: float | None  # likewise over a run's last validations, pooled over runs; only for VALIDATION
    half_width: float | None  # median half width of the 95 % intervals of differences from the reference
    apart: int  # arms that differ from the reference, with Holm's correction over the figure's arms
    compared: int  # arms that are tested against the reference, which needs two seeds
    over_seeds: float | None  # `spread` divided by `seeds`
    over_checkpoints: float | None  # `spread` divided by `checkpoints`
    decides: bool  # whether any arm differs


def signals(results: Results) -> tuple[Signal, ...]:
    """Return signal and noise of the losses that a report compares, separately for each rung of a ladder."""
    primary, tested = results.primary, results.tested_multiple
    if primary is None or not results.reference.rows:
        return ()
    gain = [f"context_gain_{name(tested)}"] if tested > 1 else []
    at_length = loss_at_length(results.reference, primary)
    figures = dict.fromkeys([at_length, primary, counterpart(primary), *gain, VALIDATION, "aulc"])
    if (rungs := results.rungs) is None:
        finished = [item for item in results.arms if item.rows]
        return tuple(_of(figures, finished, results.reference, None, None))
    return tuple(
        signal
        for rung in rungs.rungs
        for signal in _of(
            figures, [*rung.arms.values()], rung.arms[rungs.reference], rung.parameters, rung.share
        )
    )


def _of(
    figures: Iterable[str],
    every_arm: Sequence[ArmFigures],
    reference: ArmFigures,
    parameters: int | None,
    share: float | None,
) -> Iterator[Signal]:
    for figure in figures:
        arms = alike(every_arm, reference.arm, is_in_bits(figure))
        values = {item.arm.label: by_seed for item in arms if (by_seed := item.by_seed(figure))}
        if len(values) < 2 or reference.arm.label not in values:
            continue
        means = [fmean(by_seed.values()) for by_seed in values.values()]
        gaps = {
            item.arm.label: gap
            for item in arms
            if item is not reference and (gap := difference(item, reference, figure)) is not None
        }
        tests = {label: gap.p for label, gap in gaps.items() if gap.p is not None}
        halves = [gap.half_width for gap in gaps.values() if gap.half_width is not None]
        spread, seeds = max(means) - min(means), pooled(by_seed.values() for by_seed in values.values())
        checkpoints = _checkpoints(arms) if figure == VALIDATION else None
        apart = sum(p < FALSE_ALARMS for p in holm(tests).values())
        yield Signal(
            parameters,
            share,
            figure,
            spread,
            seeds,
            checkpoints,
            median(halves) if halves else None,
            apart,
            len(tests),
            spread / seeds if seeds else None,
            spread / checkpoints if checkpoints else None,
            apart > 0,
        )


def pooled(groups: Iterable[Iterable[float]]) -> float | None:
    """Return the pooled standard deviation within groups; None if no group has two values."""
    listed = [list(values) for values in groups]
    freedom = sum(len(values) - 1 for values in listed)
    squares = ((value - fmean(values)) ** 2 for values in listed for value in values)
    return math.sqrt(math.fsum(squares) / freedom) if freedom else None


def _checkpoints(arms: Iterable[ArmFigures]) -> float | None:
    last = ([at.loss for at in run.validations[-CHECKPOINTS:]] for item in arms for run in item.arm.finished)
    return pooled(losses for losses in last if losses)
