"""A table of many runs as one pandas.DataFrame."""

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from poslab.record.reader import ReportError, Run
from poslab.record.schema import TableSchema

if TYPE_CHECKING:
    from pandas import DataFrame as DataFrame
    from pandas import Series

    Numbers = Series
else:  # takes a second to load, and most commands read no table
    DataFrame = Numbers = Any


def frame(runs: Iterable[Run], schema: TableSchema) -> DataFrame | None:
    """Return the rows of a table of every run that has it; None where no run has a row.

    The columns run, pos, attention and seed come before those of the table. An optional column that a file
    lacks is NaN. Raise ReportError where a table cannot be read.
    """
    having = [run for run in runs if schema.file in run.tables]
    if not having:
        return None
    import pandas

    tables, of_rows = [], []  # the second: of which run each row is
    for run in having:
        try:
            rows = pandas.read_csv(io.BytesIO(run.tables[schema.file]))
        except ValueError as error:
            raise ReportError(f"{run.name}: {schema.file} cannot be read: {error}") from None
        if absent := [column for column in schema.columns if column not in rows]:
            raise ReportError(f"{run.name}: {schema.file} has no column {absent[0]}")
        if not rows.empty:  # its columns have no type, and would change the type of the result's
            tables.append(rows)
            of_rows += [(run.name, run.pos, run.attention, run.seed)] * len(rows)
    if not tables:
        return None
    keys = pandas.DataFrame(of_rows, columns=["run", "pos", "attention", "seed"])
    columns = [column for column in (*schema.columns, *schema.optional) if column not in keys]
    whole = pandas.concat(tables, ignore_index=True).reindex(columns=columns)
    return pandas.concat([keys, whole], axis=1)
