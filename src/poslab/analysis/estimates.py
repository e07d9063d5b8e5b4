"""Figures of one arm over its seeds."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import isfinite
from statistics import fmean

from poslab.analysis.arms import Arm
from poslab.analysis.statistics import (
    Estimate,
    Ratio,
    Time,
    estimate,
    half_width_of_next,
    near_budget,
    ratio,
)
from poslab.record import measures
from poslab.record.measures import Value
from poslab.record.reader import Run
from poslab.record.summary import Target

# Families of figures with a column per multiple of L; the first two are the first in every table.
BY_LENGTH = ("loss", "sliding", "bits_per_byte", "sliding_bits_per_byte", "early_token_curse", "context_gain")
CHANGES = ("loss_change", "sliding_change")  # from the loss at L, also with a column per multiple of L
TARGETS = {0.5: "_50", 0.75: "", 0.9: "_90"}
SINGLE = ("plateau", "aulc", "validation_loss", "tokens_per_second", "seconds", "flops")

# Usable length against the run's own loss at L, and against one loss for the whole study.
RELATIVE, FIXED = "usable_length", "usable_length_fixed"

ESTIMATE = ("n", "mean", "half_width")  # columns of a figure over the seeds
# Columns of the ratio of times to a target, arm over reference, and the fields of Ratio that they hold.
RATIO = {"_n": "n", "": "mean", "_low": "low", "_high": "high", "_kind": "kind"}

Times = Mapping[str, Mapping[int, Time]]  # tokens to each target, by the target's suffix and by seed


@dataclass(frozen=True)
class ArmFigures:
    """An arm's figures over its finished seeds, by their column names in summary.csv."""

    arm: Arm
    figures: Mapping[str, Estimate]
    rows: tuple[Mapping[str, Value], ...]  # one per finished run, sorted by seed
    times: Times = field(default_factory=dict)  # of its runs, including those that diverged
    ratios: Mapping[str, Ratio] = field(default_factory=dict)  # to the reference's times, by target

    @property
    def reached(self) -> dict[str, tuple[int, int]]:
        """How many runs reached each target, and of how many."""
        return {
            suffix: (sum(time.reached for time in by_seed.values()), len(by_seed))
            for suffix, by_seed in self.times.items()
        }

    def mean(self, figure: str) -> float | None:
        known = self.figures.get(figure)
        return None if known is None else known.mean

    def per_token(self, figure: str) -> float | None:
        """Return a whole-run figure's mean per training token; None if unknown or if tokens differ."""
        mean = self.mean(figure)
        tokens = set(self.by_seed("tokens").values())
        return mean / tokens.pop() if mean is not None and len(tokens) == 1 else None

    def by_seed(self, figure: str) -> dict[int, float]:
        """Return the figure of each seed that has it."""
        values = {row["seed"]: row.get(figure) for row in self.rows}
        return {
            seed: float(value)
            for seed, value in values.items()
            if isinstance(seed, int) and isinstance(value, int | float)
        }


def estimates(rows: Sequence[Mapping[str, Value]], columns: Iterable[str]) -> dict[str, Estimate]:
    """Return an estimate of each figure over the rows, one per seed; skip seeds without a finite number."""
    numbers = {
        column: [float(value) for row in rows if isinstance(value := row.get(column), int | float)]
        for column in columns
    }
    estimated = {column: estimate([*filter(isfinite, values)]) for column, values in numbers.items()}
    return {column: value for column, value in estimated.items() if value is not None}


def arm_figures(
    arm: Arm,
    rows: Mapping[str, Mapping[str, Value]],
    multiples: tuple[float, ...],
    targets: Iterable[Target],
    comparable: Set[str],
    reference: ArmFigures | None,
) -> ArmFigures:
    """Return the figures of `arm` from the rows of its runs; `reference` is None for the reference itself.

    Times to the `targets` cover only the runs with names in `comparable`.
    """
    finished_rows = tuple(rows[run.name] for run in arm.finished)
    columns = [f"{family}_{measures.name(k)}" for family in (*BY_LENGTH, *CHANGES) for k in multiples]
    figures = estimates(finished_rows, (*columns, *SINGLE))
    timed = [run for run in _timed(arm) if run.name in comparable]
    times = {goal.suffix: {run.seed: _time(run, goal.loss) for run in timed} for goal in targets if timed}
    for suffix, by_seed in times.items():
        if all(time.reached for time in by_seed.values()):
            # A mean without the runs that did not reach the target would flatter the arm.
            figures |= {f"tokens_to_target{suffix}": _mean_time(list(by_seed.values()))}
    against = {} if reference is None else reference.times
    ratios = {suffix: ratio(by_seed, against.get(suffix, {})) for suffix, by_seed in times.items()}
    known = {suffix: value for suffix, value in ratios.items() if value is not None}
    return ArmFigures(arm, figures, finished_rows, times, known)


def _timed(arm: Arm) -> list[Run]:
    """Return the runs to time by seed: finished ones, and diverged ones of seeds without a finished run."""
    finished = {run.seed for run in arm.finished}
    lost = [run for run in arm.runs if run.status == "diverged" and run.seed not in finished]
    return sorted([*lost, *arm.finished], key=lambda run: run.seed)


def _time(run: Run, target: float) -> Time:
    """Return the tokens to a loss. A diverged run that did not reach it needs more than its whole budget."""
    crossing = measures.crossing(run.validations, target)
    done = run.status == "done"
    if crossing is None:
        return Time(measures.tokens_without(run.validations, target) if done else float(run.budget), False)
    # A diverged run would have had until the end of its budget, evaluated on the way as the others are.
    limit = measures.last_crossing(run.validations) if done else float(run.budget)
    return Time(crossing.tokens, True, limit)


def _mean_time(times: Sequence[Time]) -> Estimate:
    """Return mean tokens to a target that all runs reached, with a wider interval near the budget."""
    tokens = [time.tokens for time in times]
    summary = estimate(tokens)
    assert summary is not None
    if summary.half_width is None or not near_budget(times):
        return summary
    return replace(summary, half_width=half_width_of_next(tokens))


def estimate_columns(figures: Mapping[str, Estimate], names: Iterable[str]) -> dict[str, Value]:
    """Return the three cells (ESTIMATE) of each named figure; n is 0 if no seed has it."""
    row: dict[str, Value] = {}
    for figure in names:
        cells = figures[figure].row if figure in figures else {"n": 0}
        row |= {f"{figure}_{end}": cells.get(end) for end in ESTIMATE}
    return row


def usable_columns(rows: Iterable[Mapping[str, Value]], key: str = RELATIVE) -> dict[str, Value]:
    """Return columns of an arm's shortest and longest usable length (None without any), RELATIVE or FIXED."""
    lengths = sorted(
        (value, row[f"{key}_multiple"], row[f"{key}_at_least"] is True)
        for row in rows
        if isinstance(value := row.get(key), int)
    )
    low, high = (lengths[0], lengths[-1]) if lengths else ((None, None, None),) * 2
    return {
        f"{key}_min": low[0],
        f"{key}_max": high[0],
        f"{key}_min_at_least": low[2],
        f"{key}_max_at_least": high[2],
        f"{key}_multiple_min": low[1],
        f"{key}_multiple_max": high[1],
    }


def position_columns(rows: Iterable[Mapping[str, Value]], key: str) -> dict[str, Value]:
    """Return an arm's least and greatest position, and the numbers of runs with one and of measured runs."""
    measured = [row for row in rows if row[f"{key}_found"] is not None]
    positions = [value for row in measured if isinstance(value := row[key], int)]
    return {
        f"{key}_min": min(positions, default=None),
        f"{key}_max": max(positions, default=None),
        f"{key}_found": len(positions),
        f"{key}_of": len(measured),
    }


def fixed_limit(reference: Iterable[Mapping[str, Value]]) -> float | None:
    """Return the highest loss, in nats per token, that usable_length_fixed counts as usable.

    It is 5 % above the mean of the reference's sliding losses at L. A model that never used its context loses
    little past L, so its own loss gives it a long usable length, but it is above this limit already at L.
    `reference` has the rows of its finished runs, one per seed. Return None if no row has such a loss.
    """
    losses = [float(loss) for row in reference if isinstance(loss := row.get("sliding_1x"), int | float)]
    return (1 + measures.TOLERANCES[""]) * fmean(losses) if losses else None


def target_columns(item: ArmFigures) -> dict[str, Value]:
    """Return how many of an arm's runs reached each target, and their times as ratios to the reference's."""
    row: dict[str, Value] = {}
    for suffix in TARGETS.values():
        row[f"reached{suffix}"], row[f"reached{suffix}_of"] = item.reached.get(suffix, (None, None))
    for suffix in TARGETS.values():
        over = item.ratios.get(suffix)
        for end, name in RATIO.items():
            row[f"tokens_to_target{suffix}_ratio{end}"] = getattr(over, name, None)
    return row
