"""One table of many runs as a pandas.DataFrame."""

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from poslab.config.text import listing
from poslab.record.reader import ReportError, Run
from poslab.record.schema import TableSchema

if TYPE_CHECKING:
    from pandas import DataFrame as DataFrame
    from pandas import Series

    Numbers = Series
else:  # pandas takes a second to import, and most commands read no table
    DataFrame = Numbers = Any

NUMBER = "number of the run"  # a temporary column while tables are read


def frame(runs: Iterable[Run], schema: TableSchema) -> DataFrame | None:
    """Return the rows of a table for all runs that have it; None if no run has a row.

    The columns run, pos, attention and seed come before those of the table. An optional column that a file
    lacks is NaN. Raise ReportError if a table cannot be read.
    """
    with_table = [run for run in runs if schema.file in run.tables]
    if not with_table:
        return None
    import pandas

    # Files with the same header are read together, which is several times faster: each row gets the number of
    # its run as its last cell. A cell with a line break is quoted, so files with quotes are read one by one.
    files: dict[bytes, list[bytes]] = {}
    quoted: dict[int, bytes] = {}
    for number, run in enumerate(with_table):
        content = run.tables[schema.file]
        header, _, rows = content.partition(b"\n")
        rows, end = rows.strip(b"\n"), b",%d\n" % number
        if b'"' in rows:
            quoted[number] = content
        else:
            files.setdefault(header, []).append(rows.replace(b"\n", end) + end if rows else b"")
        if absent := [column for column in schema.columns if column not in header.decode().split(",")]:
            raise ReportError(f"{run.name}: {schema.file} has no column {absent[0]}")
    try:
        tables = [
            _read(b"%s,%s\n%s" % (head, NUMBER.encode(), b"".join(rows))) for head, rows in files.items()
        ]
        tables += [
            pandas.read_csv(io.BytesIO(content)).assign(**{NUMBER: number})
            for number, content in quoted.items()
        ]
    except ValueError as error:
        names = listing([run.name for run in with_table])
        raise ReportError(f"{schema.file} of {names} cannot be read: {error}") from None
    filled = [table for table in tables if not table.empty]  # an empty column has no type
    if not filled:
        return None
    whole = pandas.concat(filled, ignore_index=True).sort_values(NUMBER, kind="stable")
    keys = pandas.DataFrame(
        [(run.name, run.pos, run.attention, run.seed) for run in with_table],
        columns=["run", "pos", "attention", "seed"],
    )
    row_keys = keys.loc[whole[NUMBER]].reset_index(drop=True)
    columns = [column for column in (*schema.columns, *schema.optional) if column not in keys]
    return pandas.concat([row_keys, whole.reindex(columns=columns).reset_index(drop=True)], axis=1)


def _read(content: bytes) -> DataFrame:
    """Read a CSV file with a column for the number of the run. Raise ValueError if a line is not a row."""
    import pandas

    table = pandas.read_csv(io.BytesIO(content), low_memory=False)
    if table[NUMBER].isna().any() or len(table) != content.count(b"\n") - 1:
        raise ValueError("a line is not a row")
    return table
