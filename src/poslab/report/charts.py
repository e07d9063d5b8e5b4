"""The figures as data: what the paper figures, the page and the CSV beside each of them all show."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from poslab.report.formatting import count, multiple, number, quantity
from poslab.report.load import Run
from poslab.report.measures import Bin, Value, mean_bits, mean_loss, position_bins
from poslab.report.results import Results, Target
from poslab.report.statistics import estimate

# A run's values, by x and by what the CSV calls that x.
Place = tuple[float, tuple[tuple[str, Value], ...]]
Values = dict[Place, float]


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


@dataclass(frozen=True)
class Series:
    arm: int  # its number in the study, which gives its colour in every figure
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

    @property
    def rows(self) -> list[dict[str, Value]]:
        """The CSV beside the figure."""
        return [
            {
                "arm": series.label,
                **point.keys,
                "n": point.n,
                "mean": point.mean,
                "half_width": point.half_width,
                "lowest": point.lowest,
                "highest": point.highest,
            }
            for series in self.series
            for point in series.points
        ]

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
        said = [
            f"{r.label} seed {r.seed}, target {number(r.target.loss)}: "
            f"{quantity(r.tokens) if r.tokens is not None else 'not reached'}"
            for r in self.reaches
        ]
        return f"{self.title}. {'; '.join(said)}."


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
    bits = all(
        part.bytes for run in results.finished for found in run.segments.values() for part in found.values()
    )
    measure = mean_bits if bits else mean_loss

    def values(run: Run) -> Values:
        found: Values = {}
        for k in results.multiples:
            loss = measure(run.segments.get((protocol, k), {}).values())
            if loss is not None:
                found[k, (("multiple", k), ("length", round(k * run.context_length)))] = loss
        return found

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
        f"{unit} on the same text at every length, scoring {how}. {_bars(results)}",
        f"Evaluation length{length}",
        "Bits per byte" if bits else "Loss (nats per token)",
        2,
        tuple((k, multiple(k)) for k in results.multiples),
        1.0,
        _series(results, values),
    )


def _by_position(results: Results) -> LineChart:
    shared = results.context_length

    def values(run: Run) -> Values:
        scale = 1 if shared else run.context_length
        return {(item.center / scale, _bin(item)): item.loss for item in position_bins(run)}

    series = _series(results, values)
    return LineChart(
        "loss_by_position",
        "Loss by position",
        f"Loss after each position of the longest windows, in bins four an octave. {_bars(results)}",
        "Tokens seen in the window" + (f" (L = {shared:,})" if shared else ""),
        "Loss (nats per token)",
        2,
        _octaves(series, count if shared else multiple),
        float(shared) if shared else 1.0,
        series,
    )


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
        f"Validation loss during training. {_bars(results)}",
        "Training tokens",
        "Validation loss (nats per token)",
        10,
        _decades(series),
        None,
        series,
    )


def _bars(results: Results) -> str:
    if results.seeds < 2:
        return "One seed an arm: no interval."
    return "Means over seeds with 95 % Student-t intervals, which may run past the frame."


def _series(results: Results, values: Callable[[Run], Values]) -> tuple[Series, ...]:
    """Means over the seeds of each arm, at every x that one of them has."""
    found = []
    for i, item in enumerate(results.arms):
        points = _points([values(run) for run in item.arm.finished])
        if points:
            found.append(Series(i, item.arm.label, points))
    return tuple(found)


def _points(by_seed: Sequence[Values]) -> tuple[Point, ...]:
    keys: list[Place] = sorted({k for one in by_seed for k in one})
    points = []
    for key in keys:
        found = estimate([one[key] for one in by_seed if key in one])
        if found is not None:
            points.append(
                Point(
                    key[0], found.n, found.mean, found.half_width, found.lowest, found.highest, dict(key[1])
                )
            )
    return tuple(points)


def _octaves(series: tuple[Series, ...], label: Callable[[float], str]) -> tuple[tuple[float, str], ...]:
    """Powers of two over all of x, every second one where there are many."""
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


def _range(series: tuple[Series, ...]) -> tuple[float, float]:
    x = [point.x for one in series for point in one.points]
    return min(x, default=1.0), max(x, default=1.0)
