"""The model of a report: tables and charts in sections, and the document that they make.

A table is a view of its CSV file: a column names a cell there and says how it is shown, and what is shown
keeps the number. A chart has its CSV file's rows with it.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from poslab.analysis.curves import Point
from poslab.analysis.statistics import Estimate
from poslab.record.measures import Value
from poslab.record.summary import Target
from poslab.report.formatting import DASH, number, quantity, share

FORMATS = ("svg", "png", "pdf")  # of each paper figure
SCALE_FROM = 0.0  # where the scales of shaded tables and of tokens to target begin
SPELLED_OUT = 120  # dots of a figure that its description lists one by one

Row = Mapping[str, Value]  # of a CSV file, by the names of its columns
Rows = list[dict[str, Value]]
Sheet = tuple[list[str], Rows]  # a CSV file: its columns and rows


def sheet(rows: Iterable[Row]) -> Sheet:
    """A CSV file whose columns are those of its rows."""
    listed = [dict(row) for row in rows]
    return list(dict.fromkeys(key for row in listed for key in row)), listed


@dataclass(frozen=True)
class Cell:
    """What a reader sees in a table, and the number of the CSV file that it shows."""

    text: str
    value: float | None = None
    sort: float | None = None  # what it sorts by if not its value: bounds, and what was never reached
    link: str | None = None
    arm: int | None = None  # the look of its arm or rotation, whose colour goes with it

    @property
    def order(self) -> float | None:
        """The number that it sorts by; None for words."""
        return self.value if self.sort is None else self.sort


@dataclass(frozen=True)
class Column:
    """A column of a table: `show` makes a cell of a row of the CSV file and the name of a column there."""

    key: str
    title: str
    show: Callable[[Row, str], Cell]
    group: str = ""  # a heading that neighbouring columns share
    number: bool = True
    about: str = ""  # what the column is, shown on its head


@dataclass(frozen=True)
class Table:
    """A view of rows of a CSV file."""

    title: str
    caption: str
    columns: tuple[Column, ...]
    records: Sequence[Row]  # of the CSV file; what else of them is shown, such as a link, stands beside
    sources: tuple[str, ...]  # the CSV file with the same figures in full, and one with them run by run
    grouped: bool = False  # whether rows with the same first cell are shown under it
    folded: bool = False  # whether the page shows its title alone until a reader opens it

    @cached_property
    def rows(self) -> tuple[tuple[Cell, ...], ...]:
        return tuple(tuple(column.show(row, column.key) for column in self.columns) for row in self.records)


@dataclass(frozen=True)
class Series:
    """A line of a chart."""

    arm: int  # the number of its look, or of its rotation's
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
    def rows(self) -> Rows:
        """The CSV file beside the figure."""
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


def octaves(series: Sequence[Series], label: Callable[[float], str]) -> tuple[tuple[float, str], ...]:
    """Ticks at powers of two over all of x, every second one where there are many."""
    low, high = _range(series)
    powers = range(math.ceil(math.log2(low) - 1e-9), math.ceil(math.log2(high)) + 1)
    return tuple((2.0**i, label(2.0**i)) for i in powers if len(powers) <= 7 or (powers[-1] - i) % 2 == 0)


def decades(series: Sequence[Series]) -> tuple[tuple[float, str], ...]:
    """Ticks at 1, 2, 5, 10, ... over all of x, the powers of ten alone where there are many."""
    low, high = _range(series)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [part * 10.0**i for i in powers for part in (1, 2, 5) if low <= part * 10.0**i <= high]
    tens = [tick for tick in ticks if math.log10(tick).is_integer()]
    return tuple((tick, quantity(tick)) for tick in (ticks if len(ticks) <= 7 or len(tens) < 2 else tens))


def _range(series: Sequence[Series]) -> tuple[float, float]:
    x = [point.x for one in series for point in one.points]
    return min(x, default=1.0), max(x, default=1.0)


@dataclass(frozen=True)
class PanelChart:
    """Line charts of several arms beside each other, under one legend."""

    name: str
    title: str
    caption: str
    panels: tuple[LineChart, ...]  # each has its arm's label as its title
    legend: tuple[tuple[int, str], ...]  # of all panels: the number of each look, and what it stands for
    legend_of: str  # what its lines are: rotations, heads
    rows: Rows  # the CSV file beside the figure


@dataclass(frozen=True)
class HeatPanel:
    """One arm's numbers; None where it has no value."""

    arm: int  # the number of its look
    label: str
    seeds: int
    row_titles: tuple[str, ...]
    column_titles: tuple[str, ...]
    cells: tuple[tuple[Estimate | None, ...], ...]  # rows of columns

    @property
    def known(self) -> Iterator[tuple[Estimate, str, str]]:
        """Every number with the titles of its row and column."""
        for row_title, row in zip(self.row_titles, self.cells, strict=True):
            for column_title, cell in zip(self.column_titles, row, strict=True):
                if cell is not None:
                    yield cell, row_title, column_title


@dataclass(frozen=True)
class HeatPanels:
    """Numbers by row and column, shaded by size: a panel an arm, one scale for all panels."""

    name: str
    title: str
    caption: str
    row_label: str
    column_label: str
    unit: str
    low: float  # where the scale begins
    high: float
    in_percent: bool  # whether the numbers are shares
    panels: tuple[HeatPanel, ...]
    rows: Rows  # the CSV file beside the figure

    def shown(self, value: float) -> str:
        """A number as a reader sees it, without its interval."""
        return share(value) if self.in_percent else number(value, 3)

    def end(self, value: float) -> str:
        """An end of the scale, without decimals that say nothing: 100.0 is 100."""
        text = self.shown(value)
        return text.rstrip("0").removesuffix(".") if "." in text else text

    def half(self, cell: Estimate, panel: HeatPanel) -> str:
        """What stands under a number: half its interval, and of how many seeds where not of all."""
        parts = []
        if cell.half_width is not None:
            parts.append(f"± {share(cell.half_width) if self.in_percent else number(cell.half_width, 2)}")
        if cell.n < panel.seeds:
            parts.append(f"n = {cell.n}")
        return ", ".join(parts)

    def fraction(self, value: float) -> float:
        """How far along the scale a number lies, from 0 to 1."""
        extent = self.high - self.low
        return min(1.0, max(0.0, (value - self.low) / extent)) if extent > 0 else 0.0

    @property
    def description(self) -> str:
        """The figure in words, for those who do not see it."""
        ends = []
        for panel in self.panels:
            ordered = sorted(panel.known, key=lambda one: one[0].mean)
            if ordered:
                where = [f"{self.shown(cell.mean)} at {row}, {column}" for cell, row, column in ordered]
                ends.append(f"{panel.label} from {where[0]} to {where[-1]}")
        ranges = "; ".join(ends) or DASH
        return f"{self.title}. {self.unit} by {self.row_label} and {self.column_label}. {ranges}."


@dataclass(frozen=True)
class Reach:
    """When one run reached one target; `tokens` is None where it did not within its budget."""

    arm: int
    label: str
    seed: int
    target: Target
    tokens: float | None
    budget: int

    @property
    def row(self) -> dict[str, Value]:
        """Its row in the CSV file beside the figure."""
        return {
            "arm": self.label,
            "seed": self.seed,
            "target_fraction": self.target.fraction,
            "target_loss": self.target.loss,
            "reached": self.tokens is not None,
            "tokens_to_target": self.tokens,
            "budget": self.budget,
        }


@dataclass(frozen=True)
class TargetChart:
    """Tokens to each target, a dot a run."""

    name: str
    title: str
    caption: str
    reaches: tuple[Reach, ...]
    targets: tuple[Target, ...]
    times: Mapping[int, tuple[Cell, ...]]  # of each arm, by its number: the mean time to each target

    @property
    def rows(self) -> Rows:
        """The CSV file beside the figure."""
        return [reach.row for reach in self.reaches]

    @property
    def edge(self) -> float:  # the largest budget, where the scale ends
        return max(reach.budget for reach in self.reaches)

    @property
    def by_arm(self) -> dict[tuple[int, str], list[Reach]]:
        """The reaches of each arm, by its number and label."""
        arms: dict[tuple[int, str], list[Reach]] = {}
        for reach in self.reaches:
            arms.setdefault((reach.arm, reach.label), []).append(reach)
        return arms

    @property
    def description(self) -> str:
        """The figure in words, for those who do not see it; of many runs how many of an arm's got there."""
        if len(self.reaches) > SPELLED_OUT:
            hits = {label: [r.tokens is not None for r in mine] for (_, label), mine in self.by_arm.items()}
            parts = [f"{label}: {sum(hit)} of {len(hit)} reached" for label, hit in hits.items()]
        else:
            parts = [
                f"{r.label} seed {r.seed}, target {number(r.target.loss)}: "
                f"{quantity(r.tokens) if r.tokens is not None else 'not reached'}"
                for r in self.reaches
            ]
        return f"{self.title}. {'; '.join(parts)}."


Chart = LineChart | TargetChart | PanelChart | HeatPanels


@dataclass(frozen=True)
class Section:
    """What a reader sees under one heading, and the CSV files that it comes from beside those of its charts.

    A section with one table of its own title is that table: the heading stands there once.
    """

    name: str
    title: str
    about: str = ""  # what the section shows
    findings: tuple[str, ...] = ()  # what it says, and what is missing
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    sheets: Mapping[str, Sheet] = field(default_factory=dict)  # by the name of the file


@dataclass(frozen=True)
class Answer:
    """What a reader sees first: the answer in words, the figure that is tested, a table, how sure it is."""

    sentences: tuple[str, ...]
    belief: tuple[tuple[str, str], ...]  # how far to believe it, as labels with short values
    chart: LineChart | None
    table: Table


@dataclass(frozen=True)
class Chapter:
    """Sections on one matter, under what they come to in words."""

    name: str
    title: str
    findings: tuple[str, ...]
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Origin:
    """Where the figures come from, and how to make them again."""

    report_command: str
    commands: tuple[str, ...]  # that made the runs
    study: tuple[tuple[str, str], ...]  # what the finished runs have in common or differ in
    facts: tuple[tuple[str, str], ...]  # what has to be the same for the same figures to come out
    settings: Table | None  # what the arms differ in
    configured: str  # the run whose configuration is shown
    configuration: str
    sources: tuple[str, ...]  # the CSV files with what the words say of the study and of the method
    sheets: Mapping[str, Sheet]


@dataclass(frozen=True)
class Document:
    """A whole report, before it is laid out."""

    name: str
    title: str  # the study's question, or its name
    answer: Answer
    warnings: tuple[str, ...]  # what may make the answer wrong
    chapters: tuple[Chapter, ...]
    origin: Origin
    arms: Mapping[int, str]  # their labels, by the numbers of their looks
    paper_table: Table  # of the arms
    terminal: tuple[Mapping[str, str], ...]  # a row an arm, by column title

    @property
    def summary(self) -> str:
        """The answer, for the terminal."""
        return " ".join(self.answer.sentences)

    @property
    def sections(self) -> tuple[Section, ...]:
        """Every section, in the order of the page."""
        return tuple(chain.from_iterable(chapter.sections for chapter in self.chapters))

    @property
    def charts(self) -> tuple[Chart, ...]:
        """Every figure, in the order of their numbers."""
        first = () if self.answer.chart is None else (self.answer.chart,)
        return (*first, *chain.from_iterable(section.charts for section in self.sections))

    @property
    def sheets(self) -> dict[str, Sheet]:
        """Every CSV file by its name."""
        sheets = {name: one for section in self.sections for name, one in section.sheets.items()}
        return sheets | dict(self.origin.sheets) | {chart.name: sheet(chart.rows) for chart in self.charts}
