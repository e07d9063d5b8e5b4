"""The CSV files of a report, in full precision."""

from collections.abc import Mapping
from pathlib import Path

from poslab.record.files import write_table
from poslab.record.measures import Value
from poslab.report.document import Row, Sheet


def write_sheets(directory: Path, sheets: Mapping[str, Sheet]) -> None:
    """A file for each, by its name; true and false as JSON spells them."""
    for name, (columns, rows) in sheets.items():
        write_table(directory / f"{name}.csv", columns, map(_spelled, rows))


def _spelled(row: Row) -> dict[str, Value]:
    return {key: str(value).lower() if isinstance(value, bool) else value for key, value in row.items()}
