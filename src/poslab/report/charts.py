"""The charts of a report before they are drawn, with the rows of their CSV files."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from poslab.analysis.curves import Point
from poslab.analysis.sheets import Rows
from poslab.analysis.statistics import Estimate
from poslab.report.formatting import number, quantity, share
from poslab.report.tables import Cell

FORMATS = ("svg", "png", "pdf")  # of each paper figure
FEWEST = 3  # ticks on an axis


@dataclass(frozen=True)
class Series:
    """A line of a chart."""

    arm: int  # the number of the look of its arm or rotation
    label: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Span:
    """A range of x that is marked by a labelled bar at height y."""

    low: float
    high: float
    y: float
    label: str
    dashed: bool


@dataclass(frozen=True)
class Figure:
    """The part that all charts share. Each also has `rows`, the content of its CSV file."""

    name: str
    title: str
    caption: str


@dataclass(frozen=True)
class LineChart(Figure):
    """Lines over a logarithmic x axis."""

    x_label: str
    y_label: str
    series: tuple[Series, ...]
    ticks: tuple[tuple[float, str], ...]
    mark: float | None = None  # the x of the training length L, or of what `mark_label` names
    base: int = 2  # base of the logarithm of x
    level: float | None = None  # the loss past L above which a line has failed
    ceiling: float | None = None  # the upper end of y, if lines continue above it
    stepped: bool = False  # whether a line is constant until the next point
    frame: tuple[float, float] | None = None  # the ends of y, if they do not depend on the lines
    mark_label: str = "L"
    spans: tuple[Span, ...] = ()

    @property
    def rows(self) -> Rows:
        return [{"arm": series.label, **point.row} for series in self.series for point in series.points]

    @property
    def legend(self) -> list[tuple[int, str]]:
        """The number of each line's look, with the line's label."""
        return [(series.arm, series.label) for series in self.series]


def octaves(series: Sequence[Series], label: Callable[[float], str]) -> tuple[tuple[float, str], ...]:
    """Return ticks at powers of two over the range of x; at every second one if there are more than 7."""
    low, high = _range(series)
    powers = range(math.ceil(math.log2(low) - 1e-9), math.ceil(math.log2(high)) + 1)
    return tuple((2.0**i, label(2.0**i)) for i in powers if len(powers) <= 7 or (powers[-1] - i) % 2 == 0)


def decades(
    series: Sequence[Series], label: Callable[[float], str] = quantity
) -> tuple[tuple[float, str], ...]:
    """Return ticks at 1, 2, 5, 10, ... over the range of x; at powers of ten if there are more than 7.

    If fewer than `FEWEST` ticks are left, place them at evenly spaced round numbers instead.
    """
    low, high = _range(series)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [part * 10.0**i for i in powers for part in (1, 2, 5) if low <= part * 10.0**i <= high]
    tens = [tick for tick in ticks if math.log10(tick).is_integer()]
    if len(ticks) > 7 and len(tens) > 1:
        ticks = tens
    steps = (part * 10.0**i for i in reversed(range(powers[0] - 3, powers[-1] + 1)) for part in (1, 0.5, 0.2))
    while len(ticks) < FEWEST and (step := next(steps, None)) is not None:
        ticks = [i * step for i in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]
    return tuple((tick, label(tick)) for tick in ticks)


def _range(series: Sequence[Series]) -> tuple[float, float]:
    x = [point.x for line in series for point in line.points]
    return min(x, default=1.0), max(x, default=1.0)


@dataclass(frozen=True)
class PanelChart(Figure):
    """Line charts of several arms side by side, under one legend."""

    panels: tuple[LineChart, ...]  # titled with their arms' labels; their names are not used
    legend_of: str  # what its lines stand for: rotations, heads
    rows: Rows
    ordered: tuple[tuple[int, str], ...] = ()  # the first entries of the legend, in this order

    @property
    def legend(self) -> list[tuple[int, str]]:
        """The number of each look in the panels, in order, with its label."""
        of_panels = {entry for panel in self.panels for entry in panel.legend}
        return [*self.ordered, *sorted(of_panels - {*self.ordered})]


@dataclass(frozen=True)
class HeatPanel:
    """The numbers of one arm; None for a missing value."""

    arm: int  # the number of its look
    label: str
    seeds: int
    row_titles: tuple[str, ...]
    column_titles: tuple[str, ...]
    cells: tuple[tuple[Estimate | None, ...], ...]  # by row, then by column


@dataclass(frozen=True)
class HeatPanels(Figure):
    """Numbers by row and column, shaded by value: one panel per arm, one scale for all panels."""

    row_label: str
    column_label: str
    unit: str
    high: float  # the upper end of the scale, which starts at 0
    in_percent: bool  # whether the numbers are shares
    panels: tuple[HeatPanel, ...]
    rows: Rows

    def formatted(self, value: float) -> str:
        """Return a number as it is displayed, without its interval."""
        return share(value) if self.in_percent else number(value, 3)

    def end(self, value: float) -> str:
        """Return an end of the scale without trailing zeros: 100 in place of 100.0."""
        text = self.formatted(value)
        return text.rstrip("0").removesuffix(".") if "." in text else text

    def half(self, cell: Estimate, panel: HeatPanel) -> str:
        """Return half the interval of a number, and n if some seeds lack it."""
        half = share(cell.half_width) if self.in_percent else number(cell.half_width, 2)
        parts = (
            f"± {half}" if cell.half_width else "",
            f"n = {cell.n}" if cell.n < panel.seeds else "",
        )
        return ", ".join(filter(None, parts))

    def fraction(self, value: float) -> float:
        """Return the position of a number on the scale, from 0 to 1."""
        return min(1.0, max(0.0, value / self.high)) if self.high > 0 else 0.0


@dataclass(frozen=True)
class Track:
    """The row of one arm in a track chart."""

    arm: int
    label: str
    marks: tuple[tuple[str, float | None], ...]  # the kind and position of each; None: beyond the end
    cells: tuple[Cell, ...]  # shown beside the marks
    bar: tuple[float, float] | None = None  # a range of the scale


@dataclass(frozen=True)
class TrackChart(Figure):
    """Marks on a shared scale, with one row per arm."""

    x_label: str
    scale: tuple[float, float]
    ends: tuple[str, str]  # the page's labels for the ends of the scale
    heads: tuple[tuple[str, str], ...]  # of the cells: a title, and the kind of mark it belongs to, or ""
    tracks: tuple[Track, ...]
    rows: Rows

    def along(self, x: float) -> float:
        """Return the position of x on the scale, in percent."""
        low, high = self.scale
        return 100 * (x - low) / (high - low)


Chart = LineChart | TrackChart | PanelChart | HeatPanels
