"""The figures as data: what the paper figures, the page and the CSV beside each of them all show."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from poslab.record.measures import Bin, Value, mean_bits, mean_loss, position_bins
from poslab.record.reader import Run
from poslab.record.summary import Target
from poslab.report.analysis.results import Results
from poslab.report.analysis.statistics import estimate
from poslab.report.formatting import count, multiple, number, quantity

# A run's values, by x and by what the CSV calls that x.
Place = tuple[float, tuple[tuple[str, Value], ...]]
Values = dict[Place, float]
SAID = 120  # dots of a figure that its description tells one by one


@dataclass(frozen=True)
class Point:
    """An arm's mean over `n` seeds at x, with half its 95 % interval where there is one."""

    x: float
    n: int
    mean: float
    half_width: float | None
    lowest: float
    highest: float
    keys: Mapping[str, Value]  # what x is, for the CSV

    @property
    def row(self) -> dict[str, Value]:
        """Its cells in the CSV beside the figure."""
        ends: dict[str, Value] = {"lowest": self.lowest, "highest": self.highest}
        return {**self.keys, "n": self.n, "mean": self.mean, "half_width": self.half_width} | ends


@dataclass(frozen=True)
class Series:
    arm: int  # its number in the study, or its rotation's, which gives its colour in every figure
    label: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class LineChart:
    """Lines over a logarithmic x."""

    name: str
    title: str
    caption: str
    x_label: str
    y_label: str
    base: int  # of the logarithm of x
    ticks: tuple[tuple[float, str], ...]
    mark: float | None  # where the training length L lies
    series: tuple[Series, ...]
    level: float | None = None  # a loss past L above which a line has failed
    ceiling: float | None = None  # where y ends, if lines go on above it
    stepped: bool = False  # whether a line keeps its value until the next point
    frame: tuple[float, float] | None = None  # the ends of y, where they do not depend on the lines

    @property
    def rows(self) -> list[dict[str, Value]]:
        """The CSV beside the figure."""
        return [{"arm": series.label, **point.row} for series in self.series for point in series.points]

    @property
    def description(self) -> str:
        """The figure in words, for those who do not see it."""
        ends = [
            f"{s.label} from {number(s.points[0].mean)} at {self._where(s.points[0])} "
            f"to {number(s.points[-1].mean)} at {self._where(s.points[-1])}"
            for s in self.series
        ]
        return f"{self.title}. {self.y_label} by {self.x_label}. {'; '.join(ends)}."

    def _where(self, point: Point) -> str:
        return dict(self.ticks).get(point.x) or quantity(point.x)


@dataclass(frozen=True)
class Reach:
    """When one run reached one target; `tokens` is None where it did not within its budget."""

    arm: int
    label: str
    seed: int
    target: Target
    tokens: float | None
    budget: int


@dataclass(frozen=True)
class TargetChart:
    """Tokens to each target, a dot a run."""

    name: str
    title: str
    caption: str
    reaches: tuple[Reach, ...]
    rows: list[dict[str, Value]] = field(default_factory=list)

    @property
    def description(self) -> str:
        if len(self.reaches) > SAID:
            return f"{self.title}. {'; '.join(self._counted())}."
        said = [
            f"{r.label} seed {r.seed}, target {number(r.target.loss)}: "
            f"{quantity(r.tokens) if r.tokens is not None else 'not reached'}"
            for r in self.reaches
        ]
        return f"{self.title}. {'; '.join(said)}."

    def _counted(self) -> list[str]:
        """How many of its runs' targets each arm has reached."""
        counts: dict[str, list[bool]] = {}
        for reach in self.reaches:
            counts.setdefault(reach.label, []).append(reach.tokens is not None)
        return [f"{label}: {sum(hits)} of {len(hits)} reached" for label, hits in counts.items()]


def line_charts(results: Results) -> list[LineChart]:
    """Every line figure that the records have data for."""
    charts = [_by_length(results, "non_overlapping"), _by_length(results, "sliding")]
    charts += [_by_position(results), _by_tokens(results)]
    return [chart for chart in charts if chart.series]


def target_chart(results: Results) -> TargetChart | None:
    """Tokens to target for every finished run, or None without targets."""
    reaches = [
        Reach(i, item.arm.label, run.seed, target, item.by_seed(column).get(run.seed), run.budget)
        for target in results.targets
        for i, item in enumerate(results.arms)
        for run, row in zip(item.arm.finished, item.rows, strict=True)
        if (column := f"tokens_to_target{target.suffix}") in row
    ]
    if not reaches:
        return None
    rows: list[dict[str, Value]] = [
        {
            "arm": r.label,
            "seed": r.seed,
            "target_fraction": r.target.fraction,
            "target_loss": r.target.loss,
            "reached": r.tokens is not None,
            "tokens_to_target": r.tokens,
            "budget": r.budget,
        }
        for r in reaches
    ]
    caption = (
        f"Training tokens until the validation loss stays for three evaluations at or below the loss that "
        f"{results.reference.arm.label} has at 50, 75 and 90 % of its budget. A dot a run; an open "
        f"mark at the edge did not get there within its budget."
    )
    return TargetChart("tokens_to_target", "Tokens to target", caption, tuple(reaches), rows)


def _by_length(results: Results, protocol: str) -> LineChart:
    sliding = protocol == "sliding"
    bits = in_bits(results.finished)
    unit = "Bits per byte" if bits else "Loss"
    length = "" if results.context_length is None else f" (L = {results.context_length:,})"
    how = (
        "the last L/8 tokens of windows that slide by L/8"
        if sliding
        else "every token of windows side by side"
    )
    return LineChart(
        f"{'sliding_' if sliding else ''}{'bits_per_byte' if bits else 'loss'}_by_length",
        f"{unit} by evaluation length, {'sliding' if sliding else 'non-overlapping'} windows",
        f"{unit} on the same text at every length, scoring {how}. {bars(results)}",
        f"Evaluation length{length}",
        "Bits per byte" if bits else "Loss (nats per token)",
        2,
        tuple((k, multiple(k)) for k in results.multiples),
        1.0,
        _series(results, lambda run: by_length(run, protocol, results.multiples, bits)),
    )


def by_length(run: Run, protocol: str, lengths: Sequence[float], bits: bool) -> Values:
    """Bits per byte, or nats a token, at each multiple of L that has them."""
    measure = mean_bits if bits else mean_loss
    losses = {k: measure(run.segments.get((protocol, k), {}).values()) for k in lengths}
    return {
        (k, (("multiple", k), ("length", round(k * run.context_length)))): loss
        for k, loss in losses.items()
        if loss is not None
    }


def _by_position(results: Results) -> LineChart:
    shared = results.context_length
    series = _series(results, lambda run: by_position(run, 1 if shared else run.context_length))
    return LineChart(
        "loss_by_position",
        "Loss by position",
        f"Loss after each position of the longest windows, in bins four an octave. {bars(results)}",
        "Tokens seen in the window" + (f" (L = {shared:,})" if shared else ""),
        "Loss (nats per token)",
        2,
        octaves(series, count if shared else multiple),
        float(shared) if shared else 1.0,
        series,
    )


def by_position(run: Run, unit: int, start: float = 0) -> Values:
    """Loss in each bin of positions from `start` on, by the tokens seen there in units of so many tokens."""
    return {(item.center / unit, _bin(item)): item.loss for item in position_bins(run) if item.first >= start}


def in_bits(runs: Iterable[Run]) -> bool:
    """Whether every loss of the runs has a count of bytes."""
    return all(part.bytes for run in runs for found in run.segments.values() for part in found.values())


def _bin(item: Bin) -> tuple[tuple[str, Value], ...]:
    return ("first_position", item.first), ("last_position", item.last), ("tokens_seen", item.center)


def _by_tokens(results: Results) -> LineChart:
    def values(run: Run) -> Values:
        return {
            (float(point.tokens), (("tokens", point.tokens), ("step", point.step))): point.loss
            for point in run.validations
            if point.tokens > 0 and abs(point.loss) < float("inf")
        }

    series = _series(results, values)
    return LineChart(
        "validation_loss",
        "Validation loss by training tokens",
        f"Validation loss during training. {bars(results)}",
        "Training tokens",
        "Validation loss (nats per token)",
        10,
        _decades(series),
        None,
        series,
    )


def bars(results: Results) -> str:
    """What the bars and bands about the means are."""
    if results.seeds < 2:
        return "One seed an arm: no interval."
    return "Means over seeds with 95 % Student-t intervals, which may run past the frame."


def _series(results: Results, values: Callable[[Run], Values]) -> tuple[Series, ...]:
    """Means over the seeds of each arm, at every x that one of them has."""
    found = [
        Series(i, item.arm.label, points([values(run) for run in item.arm.finished]))
        for i, item in enumerate(results.arms)
    ]
    return tuple(one for one in found if one.points)


def points(by_seed: Sequence[Values]) -> tuple[Point, ...]:
    """Means over the seeds at every x that one of them has."""
    keys: list[Place] = sorted({k for one in by_seed for k in one})
    found = []
    for key in keys:
        at = estimate([one[key] for one in by_seed if key in one])
        if at is not None:
            found.append(Point(key[0], at.n, at.mean, at.half_width, at.lowest, at.highest, dict(key[1])))
    return tuple(found)


def octaves(series: Sequence[Series], label: Callable[[float], str]) -> tuple[tuple[float, str], ...]:
    """Ticks at powers of two over all of x, every second one where there are many."""
    low, high = _range(series)
    powers = range(math.ceil(math.log2(low) - 1e-9), math.ceil(math.log2(high)) + 1)
    return tuple((2.0**i, label(2.0**i)) for i in powers if len(powers) <= 7 or (powers[-1] - i) % 2 == 0)


def _decades(series: tuple[Series, ...]) -> tuple[tuple[float, str], ...]:
    """1, 2, 5, 10, ... over all of x, the powers of ten alone where there are many."""
    low, high = _range(series)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [part * 10.0**i for i in powers for part in (1, 2, 5) if low <= part * 10.0**i <= high]
    tens = [tick for tick in ticks if math.log10(tick).is_integer()]
    return tuple((tick, quantity(tick)) for tick in (ticks if len(ticks) <= 7 or len(tens) < 2 else tens))


def _range(series: Sequence[Series]) -> tuple[float, float]:
    x = [point.x for one in series for point in one.points]
    return min(x, default=1.0), max(x, default=1.0)
