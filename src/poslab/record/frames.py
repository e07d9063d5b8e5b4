"""A table of many runs as one pandas.DataFrame."""

import io
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from poslab.record.reader import ReportError, Run
from poslab.record.schema import TableSchema

if TYPE_CHECKING:
    import pandas


def frame(runs: Iterable[Run], schema: TableSchema) -> "pandas.DataFrame | None":
    """Return the rows of a table of every run that has it; None where no run has a row.

    The columns run, pos, attention and seed come before those of the table. An optional column that a file
    lacks is NaN. The rows of a run at a length with a loss that is not finite are left out. Raise ReportError
    where a table cannot be read.
    """
    having = [run for run in runs if schema.file in run.tables]
    if not having:
        return None
    import pandas  # takes a second: only where there is a table to read

    frames = []
    for run in having:
        try:
            rows = pandas.read_csv(io.BytesIO(run.tables[schema.file]))
        except ValueError as error:
            raise ReportError(f"{run.name}: {schema.file} cannot be read: {error}") from None
        if absent := [column for column in schema.columns if column not in rows]:
            raise ReportError(f"{run.name}: {schema.file} has no column {absent[0]}")
        if rows.empty:  # its columns have no type, and would change the type of the result's
            continue
        keys = {"run": run.name, "pos": run.pos, "attention": run.attention, "seed": run.seed}
        columns = dict.fromkeys([*keys, *schema.columns, *schema.optional])
        frames.append(rows.assign(**keys).reindex(columns=list(columns)))
    if not frames:
        return None
    table = pandas.concat(frames, ignore_index=True)
    losses = [column for column in schema.columns if column.startswith("nll")]
    finite = table[losses].abs().lt(math.inf).all(axis=1)  # False for NaN
    parts = [table[key] for key in ("run", "multiple") if key in table]
    table = table[finite.groupby(parts).transform("all")]
    return None if table.empty else table.reset_index(drop=True)
