"""Time pieces of work in turns, and compute ratios with intervals.

The speed of a shared machine changes from minute to minute. So compared pieces of work take turns within one
process, and ratios are taken within each round, where the machine was the same for all.
"""

import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from scipy.stats import binom

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Ratio:
    """The median of the rounds' ratios, with its interval at level CONFIDENCE."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


def ratio(over: Sequence[float], under: Sequence[float]) -> Ratio:
    """Return the median of `over` divided by `under`, round by round.

    The interval is that of the sign test, between two of the sorted ratios. It assumes nothing about the
    distribution of times, and a stalled round affects it no more than any other. Infinite below six rounds.
    """
    ratios = sorted(above / below for above, below in zip(over, under, strict=True))
    outside = int(binom.ppf((1 - CONFIDENCE) / 2, len(ratios), 0.5))
    if outside == 0:
        return Ratio(statistics.median(ratios), -math.inf, math.inf)
    return Ratio(statistics.median(ratios), ratios[outside - 1], ratios[-outside])


def in_turns(
    work: Mapping[str, Callable[[], object]], rounds: int, device: torch.device
) -> dict[str, list[float]]:
    """Return the seconds of each piece of work in each round, after one uncounted call of each.

    The order is drawn again for each round, so that no piece always follows the same other one.
    """
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for piece in work.values():
        piece()
    names, order = list(work), random.Random(0)
    for _ in range(rounds):
        order.shuffle(names)
        for name in names:
            seconds[name].append(timed(work[name], device))
    return seconds


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of one call, until the device has finished its work.

    With one thread on a CPU, return processor time: interruptions by other processes do not lengthen it.
    """
    single_thread = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if single_thread else time.perf_counter
    settle(device)
    begun = clock()
    work()
    settle(device)
    return clock() - begun


def settle(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as text: the first column is aligned left, the others right."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
