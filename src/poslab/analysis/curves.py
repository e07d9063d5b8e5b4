"""Curves over the seeds: a run's losses by length and by position, and an arm's means at every x."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from poslab.analysis.statistics import Estimate, estimate
from poslab.record.measures import Bin, Value, mean_bits, mean_loss, name, position_bins
from poslab.record.reader import Run

STEADY = 0.7  # of the speed of a run's fast stretches: what its slow ones keep on a machine of its own

# A run's values, by x and by what the CSV calls that x.
Place = tuple[float, tuple[tuple[str, Value], ...]]
Values = dict[Place, float]


@dataclass(frozen=True)
class Point(Estimate):
    """An arm's mean over its seeds at x."""

    x: float
    keys: Mapping[str, Value]  # what x is, for the CSV

    @property
    def row(self) -> dict[str, Value]:
        return {**self.keys, **super().row}


def point(x: float, at: Estimate, keys: Mapping[str, Value]) -> Point:
    return Point(at.n, at.mean, at.half_width, at.lowest, at.highest, x, keys)


def points(by_seed: Sequence[Values]) -> tuple[Point, ...]:
    """Means over the seeds at every x that one of them has."""
    places: list[Place] = sorted({place for values in by_seed for place in values})
    estimates = [estimate([values[place] for values in by_seed if place in values]) for place in places]
    return tuple(point(x, at, dict(keys)) for (x, keys), at in zip(places, estimates, strict=True) if at)


def by_length(run: Run, protocol: str, lengths: Sequence[float], bits: bool) -> Values:
    """Bits per byte, or nats a token, at each multiple of L that has them."""
    measure = mean_bits if bits else mean_loss
    losses = {k: measure(run.segments.get((protocol, k), {}).values()) for k in lengths}
    return {(k, _length(run, k)): loss for k, loss in losses.items() if loss is not None}


def row_by_length(run: Run, row: Mapping[str, Value], family: str, lengths: Sequence[float]) -> Values:
    """A figure of a run's row at each multiple of L in its columns' names."""
    return {
        (k, _length(run, k)): value
        for k in lengths
        if isinstance(value := row.get(f"{family}_{name(k)}"), float)
    }


def validation_losses(run: Run) -> Values:
    """Validation loss by the training tokens before it."""
    return {
        (float(point.tokens), (("tokens", point.tokens), ("step", point.step))): point.loss
        for point in run.validations
        if point.tokens > 0 and abs(point.loss) < float("inf")
    }


def by_cost(curve: Sequence[Point], per_token: float, name: str) -> tuple[Point, ...]:
    """A curve over training tokens as one over what these cost, `per_token` each; the CSV calls it `name`."""
    return tuple(
        replace(one, x=one.x * per_token, keys={**one.keys, name: one.x * per_token}) for one in curve
    )


def is_steady(run: Run) -> bool:
    """Whether the run trained at one speed, as far as its validations show it.

    A machine that others use slows a run for a while: beside other work, the slow tenth of a run's stretches
    between validations went at 0.3 to 0.7 of the speed of the fast tenth; with the machine to itself, at 0.73
    and more.
    """
    timed = [(one.tokens, one.seconds) for one in run.validations if one.seconds is not None]
    speeds = sorted(
        (after - before) / (end - start) for (before, start), (after, end) in pairwise(timed) if end > start
    )
    tenth = len(speeds) // 10
    return bool(speeds) and speeds[tenth] >= STEADY * speeds[-1 - tenth]


def in_bits(runs: Iterable[Run]) -> bool:
    """Whether every loss of the runs has a count of bytes."""
    return all(part.bytes for run in runs for parts in run.segments.values() for part in parts.values())


def _length(run: Run, k: float) -> tuple[tuple[str, Value], ...]:
    return ("multiple", k), ("length", round(k * run.context_length))


def by_position(run: Run, unit: int, start: float = 0) -> Values:
    """Loss in each bin of positions from `start` on, by the tokens seen there in units of so many tokens."""
    return {(item.center / unit, _bin(item)): item.loss for item in position_bins(run) if item.first >= start}


def _bin(item: Bin) -> tuple[tuple[str, Value], ...]:
    return ("first_position", item.first), ("last_position", item.last), ("tokens_seen", item.center)
