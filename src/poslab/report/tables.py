"""The tables of a report before layout; each is a view of a CSV file.

A column names a column of that file and formats its values. A formatted cell keeps the number it shows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from poslab.analysis.sheets import Row


@dataclass(frozen=True)
class Cell:
    """The text of a table cell, and the number from the CSV file that it shows."""

    text: str
    value: float | None = None
    link: str | None = None
    arm: int | None = None  # number of the look of its arm or rotation, which sets its colour


@dataclass(frozen=True)
class Column:
    """A column of a table. `show` makes a cell from a row of the CSV file and the name of a column."""

    key: str
    title: str
    show: Callable[[Row, str], Cell]
    group: str = ""  # a heading shared by neighbouring columns
    number: bool = True
    about: str = ""  # an explanation, shown as a tooltip on the heading


@dataclass(frozen=True)
class Table:
    """A view of the rows of a CSV file."""

    title: str
    caption: str
    columns: tuple[Column, ...]
    records: Sequence[Row]  # the rows of the CSV file, in some tables with further cells
    sources: tuple[str, ...]  # the CSV file with the figures in full, and in some tables one by run
    grouped: bool = False  # whether rows with the same first cell are grouped under it
    folded: bool = False  # whether the page shows only the title until a reader opens the table
    in_markdown: bool = True  # whether report.md has the table

    @cached_property
    def rows(self) -> tuple[tuple[Cell, ...], ...]:
        return tuple(tuple(column.show(row, column.key) for column in self.columns) for row in self.records)
