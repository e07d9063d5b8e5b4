"""Tables of very many rows, kept readable and small: what is the same in every row is said once, above."""

from dataclasses import replace

from poslab.config.text import listing
from poslab.report.formatting import DASH
from poslab.report.tables import Cell, Table

LONG = 60  # rows that a page shows without a frame to scroll in
FOLDED = 100  # rows from which on a column of one value is taken out


def folded(table: Table) -> Table:
    """The table without columns that say the same in all of very many rows; its caption says it instead."""
    if len(table.rows) < FOLDED:
        return table
    first = table.rows[0]
    same = {i for i in range(1, len(first)) if all(_shown(row[i]) == _shown(first[i]) for row in table.rows)}
    said = [f"{table.columns[i].title} {first[i].text}" for i in sorted(same) if first[i].text != DASH]
    caption = f"{table.caption} The same for all: {listing(said, len(said))}." if said else table.caption
    return replace(
        table,
        caption=caption,
        columns=tuple(column for i, column in enumerate(table.columns) if i not in same),
        rows=tuple(tuple(cell for i, cell in enumerate(row) if i not in same) for row in table.rows),
    )


def _shown(cell: Cell) -> tuple[str, str | None]:
    return cell.text, cell.link
