"""Curves over seeds: a run's losses by length and by position, and an arm's means at every x."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from poslab.analysis.statistics import Estimate, estimate
from poslab.record.measures import Value, mean_bits, mean_loss, name, position_bins
from poslab.record.reader import Run

STEADY = 0.7  # least ratio of slow to fast speeds between validations of a run with the machine to itself

# A run's values, by x and by the CSV columns that describe x.
Place = tuple[float, tuple[tuple[str, Value], ...]]
Values = dict[Place, float]


@dataclass(frozen=True)
class Point(Estimate):
    """An arm's mean over its seeds at x."""

    x: float
    keys: Mapping[str, Value]  # the CSV columns that describe x

    @property
    def row(self) -> dict[str, Value]:
        return {**self.keys, **super().row}


def point(x: float, at: Estimate, keys: Mapping[str, Value]) -> Point:
    return Point(at.n, at.mean, at.half_width, at.lowest, at.highest, x, keys)


def points(values_by_seed: Iterable[Values]) -> tuple[Point, ...]:
    """Return means over the seeds at every x that at least one of them has."""
    by_seed = list(values_by_seed)
    places: list[Place] = sorted({place for values in by_seed for place in values})
    estimates = [estimate([values[place] for values in by_seed if place in values]) for place in places]
    return tuple(point(x, at, dict(keys)) for (x, keys), at in zip(places, estimates, strict=True) if at)


def by_length(run: Run, protocol: str, lengths: Sequence[float], bits: bool) -> Values:
    """Return bits per byte (with `bits`) or nats per token at each multiple of L that has them."""
    measure = mean_bits if bits else mean_loss
    losses = {k: measure(run.segments.get((protocol, k), {}).values()) for k in lengths}
    return {(k, _length(run, k)): loss for k, loss in losses.items() if loss is not None}


def row_by_length(run: Run, row: Mapping[str, Value], family: str, lengths: Sequence[float]) -> Values:
    """Return one family of figures of a run's row at each multiple of L that has it."""
    return {
        (k, _length(run, k)): value
        for k in lengths
        if isinstance(value := row.get(f"{family}_{name(k)}"), float)
    }


def validation_losses(run: Run) -> Values:
    """Return finite validation losses by the number of training tokens before them."""
    return {
        (float(point.tokens), (("tokens", point.tokens), ("step", point.step))): point.loss
        for point in run.validations
        if point.tokens > 0 and abs(point.loss) < float("inf")
    }


def by_cost(curve: Sequence[Point], per_token: float, name: str) -> tuple[Point, ...]:
    """Return the curve over cost, `per_token` for each training token; the CSV column is `name`."""
    return tuple(
        replace(mean, x=mean.x * per_token, keys={**mean.keys, name: mean.x * per_token}) for mean in curve
    )


def is_steady(run: Run) -> bool:
    """Return whether the run trained at a steady speed, as far as its validations show.

    With other work on the machine, the slowest tenth of the stretches between validations ran at 0.3 to 0.7
    of the speed of the fastest tenth; without, at 0.73 or more.
    """
    timed = [(point.tokens, point.seconds) for point in run.validations if point.seconds is not None]
    speeds = sorted(
        (after - before) / (end - start) for (before, start), (after, end) in pairwise(timed) if end > start
    )
    tenth = len(speeds) // 10
    return not speeds or speeds[tenth] >= STEADY * speeds[-1 - tenth]


def in_bits(runs: Iterable[Run]) -> bool:
    """Return whether every loss of the runs has a count of bytes."""
    sums = (part for run in runs for parts in run.segments.values() for part in parts.values())
    return all(part.bytes is not None for part in sums)


def _length(run: Run, k: float) -> tuple[tuple[str, Value], ...]:
    return ("multiple", k), ("length", round(k * run.context_length))


def by_position(run: Run, unit: int, start: float = 0) -> Values:
    """Return the loss in each bin of positions from `start` on; x is the tokens seen, divided by `unit`."""
    losses: Values = {}
    for item in position_bins(run):
        if item.first >= start:
            keys = ("first_position", item.first), ("last_position", item.last), ("tokens_seen", item.center)
            losses[item.center / unit, keys] = item.loss
    return losses
