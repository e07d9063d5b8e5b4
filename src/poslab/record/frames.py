"""A table of many runs as one pandas.DataFrame."""

import io
from collections.abc import Iterable, Sequence
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

    joined = _joined([run.tables[schema.file] for run in having])
    tables, counts = joined or _one_by_one(having, schema)
    for run, table in zip(having, tables, strict=False):
        if absent := [column for column in schema.columns if column not in table]:
            raise ReportError(f"{run.name}: {schema.file} has no column {absent[0]}")
    filled = [table for table in tables if not table.empty]  # an empty column has no type
    if not filled:
        return None
    of_runs = [
        (run.name, run.pos, run.attention, run.seed) for run, n in zip(having, counts, strict=True) if n
    ]
    by_run = pandas.DataFrame(of_runs, columns=["run", "pos", "attention", "seed"])
    keys = by_run.loc[by_run.index.repeat([n for n in counts if n])].reset_index(drop=True)
    columns = [column for column in (*schema.columns, *schema.optional) if column not in keys]
    whole = pandas.concat(filled, ignore_index=True).reindex(columns=columns)
    return pandas.concat([keys, whole], axis=1)


def _joined(contents: Sequence[bytes]) -> tuple[list[DataFrame], list[int]] | None:
    """Read CSV files at once, which is several times as fast; also return how many rows each has.

    None where their headers differ, or where a line is no row.
    """
    import pandas

    heads, _, bodies = zip(*(content.partition(b"\n") for content in contents), strict=True)
    if len({*heads}) > 1 or any(body[-1:] not in (b"", b"\n") for body in bodies):
        return None
    counts = [body.count(b"\n") for body in bodies]
    try:
        rows = pandas.read_csv(io.BytesIO(b"\n".join([heads[0], b"".join(bodies)])), low_memory=False)
    except ValueError:
        return None
    return ([rows], counts) if len(rows) == sum(counts) else None


def _one_by_one(runs: Sequence[Run], schema: TableSchema) -> tuple[list[DataFrame], list[int]]:
    """Read the table of each run. Raise ReportError where one cannot be read."""
    import pandas

    tables = []
    for run in runs:
        try:
            tables.append(pandas.read_csv(io.BytesIO(run.tables[schema.file])))
        except ValueError as error:
            raise ReportError(f"{run.name}: {schema.file} cannot be read: {error}") from None
    return tables, [*map(len, tables)]
