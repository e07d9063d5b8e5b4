"""Tables of a report, each a view of a CSV file, before they are laid out.

A column names a cell of that file and formats it; a formatted cell still has its number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from poslab.analysis.sheets import Row


@dataclass(frozen=True)
class Cell:
    """What a reader sees in a table, and the number of the CSV file that it shows."""

    text: str
    value: float | None = None
    sort: float | None = None  # what it sorts by if not its value: bounds, and what was never reached
    link: str | None = None
    arm: int | None = None  # the look of its arm or rotation, which sets its colour

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
    folded: bool = False  # whether the page shows only its title until a reader opens it

    @cached_property
    def rows(self) -> tuple[tuple[Cell, ...], ...]:
        return tuple(tuple(column.show(row, column.key) for column in self.columns) for row in self.records)
