"""Forms of one computation that take turns in one process, and the ratios of their times.

On a shared machine only ratios of neighbours in time mean anything: a round gives a ratio to the first form.
"""

import ctypes
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Ratio:
    """A median over rounds, with the order statistics that hold the true median in 95 of 100 such series."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f}  ({self.low:.2f} to {self.high:.2f})"


def ratios(forms: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, Ratio]:
    """Each form's processor time over that of the first, with one thread; one round more warms up."""
    torch.set_num_threads(1)
    _keep_memory()
    seconds: dict[str, list[float]] = {name: [] for name in forms}
    for turn in range(rounds + 1):
        for name, form in forms.items():
            began = time.process_time()
            form()
            if turn:
                seconds[name].append(time.process_time() - began)
    first = seconds[next(iter(forms))]
    return {
        name: _median([own / other for own, other in zip(times, first, strict=True)])
        for name, times in seconds.items()
    }


def _median(values: Sequence[float]) -> Ratio:
    ordered, count = sorted(values), len(values)
    # The most values to leave out on each side such that both tails of Binomial(n, 1/2) hold 5 % at most.
    tail, out = 0.0, 0
    while out < count // 2 and tail + math.comb(count, out) / 2**count <= 0.025:
        tail += math.comb(count, out) / 2**count
        out += 1
    low = max(0, out - 1)
    return Ratio(statistics.median(ordered), ordered[low], ordered[count - 1 - low])


def _keep_memory() -> None:
    """Have the C library reuse released memory, as attention_trial.py does and for the same reason."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(-4, 0)  # M_MMAP_MAX
        library.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def options(arguments: Sequence[str], defaults: Mapping[str, str]) -> dict[str, str]:
    """key=value arguments over the defaults. Exits with a line for any other argument."""
    chosen = dict(defaults)
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if key not in defaults or not equals or not value:
            raise SystemExit(f"{argument!r} is not understood; options are {', '.join(defaults)}")
        chosen[key] = value
    return chosen
