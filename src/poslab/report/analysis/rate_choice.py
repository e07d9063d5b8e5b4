"""Which learning rate an arm trains with: the one of a grid whose tuning runs end with the lowest loss."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    rate: float
    edge: bool  # whether it is the lowest or highest of the grid: the best may lie outside


def choose(losses: Mapping[float, Sequence[float | None]]) -> Choice | None:
    """The rate with the lowest mean loss over its seeds, the lower one of two that are equal.

    `losses` has a final validation loss a seed, None (or what is not finite) where the seed's run did not
    end with one. A rate with such a seed, or with none at all, is out. None where every rate is.
    """
    means = {
        rate: math.fsum(found) / len(found) for rate, values in losses.items() if (found := _all(values))
    }
    if not means:
        return None
    rate = min(means, key=lambda rate: (means[rate], rate))
    return Choice(rate, rate in (min(losses), max(losses)))


def _all(values: Sequence[float | None]) -> list[float]:
    """The losses if every one of them is a number, else nothing."""
    found = [value for value in values if value is not None and math.isfinite(value)]
    return found if len(found) == len(values) else []
