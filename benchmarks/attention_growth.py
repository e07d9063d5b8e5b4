"""The growth of attention's time and memory with the length: exponents, ratios, and bounds on both."""

import csv
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

FIT_FROM = 4096  # tokens: below it, work that does not grow with the length still matters
TIME_BOUND = {"O(L)": 1.1}  # upper bound on the exponent, by an attention's form
MEMORY_BOUND = {"O(L)": 1.05, "fused": 1.1}


@dataclass(frozen=True)
class Pair:
    pos: str
    attention: str
    form: str  # an Attention's `form`

    @property
    def label(self) -> str:
        return f"{self.attention}+{self.pos}"


@dataclass(frozen=True)
class Row:
    """One pair at one length."""

    pair: Pair
    kernel: str
    length: int
    rounds: int
    seconds: float  # the shortest of the rounds
    peak_bytes: int
    threads: int
    device: str


@dataclass(frozen=True)
class Exponents:
    """Time and memory as powers of the length, fitted over the lengths from FIT_FROM on."""

    pair: Pair
    lengths: tuple[int, ...]
    time: float
    memory: float

    @property
    def time_bound(self) -> float | None:
        return TIME_BOUND.get(self.pair.form)

    @property
    def memory_bound(self) -> float | None:
        return MEMORY_BOUND.get(self.pair.form)


@dataclass(frozen=True)
class RatioBound:
    """Bounds on the ratio of two pairs' times: from `least` to `most`, at `length` or at every length."""

    above: str
    below: str
    most: float = math.inf
    least: float = 0.0
    length: int | None = None

    @property
    def text(self) -> str:
        side = f"≤ {self.most:g}" if self.most < math.inf else f"≥ {self.least:g}"
        return f"{self.above} / {self.below} {side}" + (f" at {self.length:,}" if self.length else "")

    def holds(self, ratio: float) -> bool:
        return self.least <= ratio <= self.most


RATIO_BOUNDS = (
    RatioBound("linear+t5", "linear+none", most=3),
    RatioBound("linear+alibi", "linear+none", most=1.5),
    RatioBound("softmax+none", "linear+none", least=5, length=8192),
    RatioBound("softmax+rope", "linear+rope", least=5, length=8192),
)
COMPARED = {label for bound in RATIO_BOUNDS for label in (bound.above, bound.below)}


def exponents(rows: Sequence[Row]) -> list[Exponents]:
    """Return least-squares slopes of the logarithms for pairs with two or more lengths from FIT_FROM on."""
    fitted = []
    for pair in dict.fromkeys(row.pair for row in rows):
        selected = sorted((row for row in rows if row.pair == pair and row.length >= FIT_FROM), key=_length)
        if len(selected) >= 2:
            logarithm = [math.log(row.length) for row in selected]
            time, memory = (
                statistics.linear_regression(logarithm, [math.log(value) for value in values]).slope
                for values in ([row.seconds for row in selected], [row.peak_bytes for row in selected])
            )
            fitted.append(Exponents(pair, tuple(row.length for row in selected), time, memory))
    return fitted


def ratios(rows: Sequence[Row], above: str, below: str) -> dict[int, float]:
    """Return the ratio of two pairs' times by length."""
    seconds = {(row.pair.label, row.length): row.seconds for row in rows}
    return {
        length: value / seconds[below, length]
        for (label, length), value in sorted(seconds.items())
        if label == above and (below, length) in seconds
    }


def missed(rows: Sequence[Row]) -> list[str]:
    """Return a line for every bound that does not hold."""
    lines = []
    for fit in exponents(rows):
        for quantity, value, bound in (
            ("time", fit.time, fit.time_bound),
            ("memory", fit.memory, fit.memory_bound),
        ):
            if bound is not None and value > bound:
                lines.append(f"{fit.pair.label}: {quantity} grows as length^{value:.3f}, above {bound:g}")
    for bound_ in RATIO_BOUNDS:
        for length, ratio in ratios(rows, bound_.above, bound_.below).items():
            if bound_.length in (None, length) and not bound_.holds(ratio):
                lines.append(f"{bound_.text}: {ratio:.2f} at {length:,}")
    return lines


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    header = ("pos", "attention", "kernel", "length", "rounds", "seconds", "peak_bytes", "threads", "device")
    lines = [
        (
            row.pair.pos,
            row.pair.attention,
            row.kernel,
            row.length,
            row.rounds,
            f"{row.seconds:.6g}",
            row.peak_bytes,
            row.threads,
            row.device,
        )
        for row in rows
    ]
    _write(path, header, lines)


def write_exponents(path: Path, fitted: Iterable[Exponents]) -> None:
    header = ("pos", "attention", "shortest", "longest", "time", "time_bound", "memory", "memory_bound")
    lines = [
        (
            fit.pair.pos,
            fit.pair.attention,
            fit.lengths[0],
            fit.lengths[-1],
            f"{fit.time:.4f}",
            fit.time_bound,
            f"{fit.memory:.4f}",
            fit.memory_bound,
        )
        for fit in fitted
    ]
    _write(path, header, lines)


def _write(path: Path, header: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(lines)


def _length(row: Row) -> int:
    return row.length
