"""Which of several learning rates a scheme is compared with."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    rate: float
    edge: bool  # whether it is the lowest or the highest that was tried, so that a better one may lie beyond


def choose(losses: Mapping[float, Sequence[float | None]]) -> Choice | None:
    """The rate with the lowest mean loss over its seeds; None where there is none.

    A rate of which one seed has no loss (it diverged or failed) is out. Of two as good, the lower.
    """
    means = {
        rate: math.fsum(found) / len(found)
        for rate, values in losses.items()
        if values and len(found := [value for value in values if value is not None]) == len(values)
    }
    if not means:
        return None
    rate = min(means, key=lambda rate: (means[rate], rate))
    return Choice(rate, rate in (min(losses), max(losses)))
