"""Figures of numbers in rows and columns, shaded by size: a panel an arm, one scale for all panels."""

from collections.abc import Iterator
from dataclasses import dataclass

from poslab.record.measures import Value
from poslab.report.analysis.statistics import Estimate
from poslab.report.formatting import DASH, number, share

SCALE_FROM = 0.0  # where every scale begins


@dataclass(frozen=True)
class HeatPanel:
    """One arm's numbers; None where it has no value."""

    arm: int  # its number in the study, which gives its colour in every figure
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


def intervals(seeds: int) -> str:
    """What stands under the numbers, for the caption."""
    if seeds < 2:
        return "One seed an arm: no interval."
    return (
        "Means over seeds; ± is half their 95 % Student-t interval, which the paper figure leaves to the CSV."
    )


@dataclass(frozen=True)
class HeatPanels:
    """Numbers by row and column, a panel an arm."""

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
    rows: list[dict[str, Value]]  # the CSV beside the figure

    def shown(self, value: float) -> str:
        """A number as a reader sees it, without its interval."""
        return share(value) if self.in_percent else number(value, 3)

    def end(self, value: float) -> str:
        """An end of the scale, without decimals that say nothing: 100.0 is 100."""
        text = self.shown(value)
        return text.rstrip("0").removesuffix(".") if "." in text else text

    def half(self, cell: Estimate, panel: HeatPanel) -> str:
        """What stands under a number: half its interval, and of how many seeds where not of all."""
        said = []
        if cell.half_width is not None:
            said.append(f"± {share(cell.half_width) if self.in_percent else number(cell.half_width, 2)}")
        if cell.n < panel.seeds:
            said.append(f"n = {cell.n}")
        return ", ".join(said)

    def part(self, value: float) -> float:
        """How far along the scale a number lies, from 0 to 1."""
        extent = self.high - self.low
        return min(1.0, max(0.0, (value - self.low) / extent)) if extent > 0 else 0.0

    @property
    def description(self) -> str:
        """The figure in words, for those who do not see it."""
        ends = []
        for panel in self.panels:
            found = sorted(panel.known, key=lambda one: one[0].mean)
            if found:
                where = [f"{self.shown(cell.mean)} at {row}, {column}" for cell, row, column in found]
                ends.append(f"{panel.label} from {where[0]} to {where[-1]}")
        said = "; ".join(ends) or DASH
        return f"{self.title}. {self.unit} by {self.row_label} and {self.column_label}. {said}."
