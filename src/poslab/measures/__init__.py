"""Measurements of trained models, each in a file of its own and found by that file's name.

A measurement is a module of this package, or of an installed package that declares it (entry points of the
group `poslab.measures`), with one public subclass of `Measurement`. Its table is stored with a run's other
tables. Its figures appear in summary.csv, its section in the report and its curve in W&B, without any other
edit. docs/extending.md has an example.

Import PyTorch inside `measure`: a report reads and shows the tables without it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from poslab.config.registry import find, part_names
from poslab.config.schema import ConfigError, RunConfig
from poslab.objectives import build_objective
from poslab.record.frames import frame
from poslab.record.measures import Value
from poslab.record.reader import Run
from poslab.record.schema import TableSchema

if TYPE_CHECKING:
    import pandas

    from poslab.data.corpus import Corpus
    from poslab.model.gpt import GPT
    from poslab.report.charts import LineChart, PanelChart
    from poslab.report.document import Section
    from poslab.report.study_tables import StudyTables
    from poslab.report.tables import Table

# Columns that reports add to a measurement's table, and to the means of its curve.
BESIDE_COLUMNS = frozenset({"arm", "run", "pos", "attention", "seed"})
BESIDE_AXIS = frozenset({"n", "mean", "half_width", "lowest", "highest"})
CHAPTERS = frozenset({"past", "learning", "what"})

Row = Mapping[str, Any]
Result = TypeVar("Result")


class Progress(Protocol):
    """The display of the progress of the work."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Return a context manager for a phase of the work, which lasts as long as the context."""

    def share(self, name: str, share: float) -> None:
        """Show that a `share` of the phase (0 to 1) is done; `name` describes the current work."""


@dataclass(frozen=True)
class Trained:
    """A trained model for a measurement, with its resolved configuration and its text."""

    gpt: "GPT"
    config: RunConfig
    corpus: "Corpus"
    progress: Progress
    # Trains the model further without its rotation, and returns it, or None if that training diverged.
    without_positions: "Callable[[], GPT | None]"
    _results: dict[Any, Any] = field(default_factory=dict)

    def once(self, compute: "Callable[[Trained], Result]") -> Result:
        """Return what `compute` returns for this model, computed once for all measurements that need it."""
        if compute not in self._results:
            self._results[compute] = compute(self)
        return self._results[compute]


class Measurement:
    """The contract of a measurement. `columns` or `table` is required, the rest is optional."""

    name: ClassVar[str]  # the last part of its module's name
    columns: ClassVar[tuple[str, ...]]  # the columns of its table, NAME.csv in a run's folder
    table: ClassVar[TableSchema]  # instead of `columns`, if the file has another name
    order: ClassVar[int] = 100  # its place in the order of measuring and within its chapter of the report
    chapter: ClassVar[str] = "past"  # its chapter of the report: past, learning or what
    # Loggers name its charts `family`/<line> over `family`/<axis>; the default is `name`.
    family: ClassVar[str]
    axis: ClassVar[str] = ""  # the name of the charts' x; without it there are no charts
    reads_text: ClassVar[bool] = True  # False if models that trained without text are measured too

    def __init_subclass__(cls) -> None:
        cls.name = cls.__module__.rpartition(".")[2]
        cls.family = cls.__dict__.get("family", cls.name)
        if "table" not in cls.__dict__:
            cls.table = TableSchema(f"{cls.name}.csv", cls.columns)
        for attribute, wrong in (
            ("columns", {*cls.table.columns} & BESIDE_COLUMNS),
            ("axis", {cls.axis} & (BESIDE_COLUMNS | BESIDE_AXIS)),
            ("chapter", {cls.chapter} - CHAPTERS),
        ):
            if wrong:
                raise ConfigError(f"{cls.__name__}.{attribute} cannot be {', '.join(sorted(wrong))}")

    def wanted(self, config: RunConfig) -> bool:
        """Return whether runs with this configuration are measured."""
        return True

    def measure(self, trained: Trained) -> Iterable[Row] | None:
        """Return the rows of the table, or None if the model has nothing to measure: no table is written.

        Each row has all `columns`. Record sums with their counts, not means, so that figures can be pooled.
        A measurement that only adds figures from another one's table, such as `table = EXTRAPOLATION`, does
        not override this method.
        """
        return None

    def summarise(self, table: "pandas.DataFrame") -> "pandas.DataFrame":
        """Return a DataFrame of figures, a row per run, indexed by run; its columns are added to summary.csv.

        `table` has the rows of all finished runs of a study, with the columns run, pos, attention and seed
        before its own. summary.csv must not have columns of these names already.
        """
        return table[["run"]].drop_duplicates().set_index("run")

    def curve(self, table: "pandas.DataFrame") -> "pandas.DataFrame | None":
        """Return the curve of one run, a DataFrame of numbers: a line per column over x, the index.

        Each x occurs once, and no column is named arm, run or as the `axis`. Loggers draw the curve, the
        default `section` its means over the seeds by arm.
        """
        return None

    def sheet(self, table: "pandas.DataFrame") -> "pandas.DataFrame | None":
        """Return one run's table for W&B: by default the whole table if there is an `axis`, else None."""
        return table[[*self.table.columns]] if self.axis else None

    def answer(self, study: "StudyTables") -> Iterable[str]:
        """Return sentences for the answer at the start of a report."""
        return ()

    def lead(self, study: "StudyTables") -> "tuple[LineChart | PanelChart, Table] | None":
        """Return the figure and the table at the start of a report on a study that tests no loss."""
        return None

    def section(self, study: "StudyTables") -> "Section | None":
        """Return the section of the report, by default each figure of `summarise` by arm; None for none.

        Sections of several measurements with the same name are joined under the heading of the first.
        """
        return study.default_section(self)


def wanted(config: RunConfig) -> list["Measurement"]:
    """Return the measurements for runs with this configuration."""
    has_text = build_objective(config.objective).reads_text
    return [
        measurement
        for measurement in measurements()
        if (has_text or not measurement.reads_text) and measurement.wanted(config)
    ]


@cache
def measurements() -> tuple[Measurement, ...]:
    """Return all measurements of poslab and of installed packages, sorted by `order`.

    Raise ConfigError if an installed package declares one that cannot be imported.
    """
    names = part_names(__name__)
    unordered = [find(name, Measurement, __name__, "measurement")() for name in names]
    return tuple(sorted(unordered, key=lambda measurement: measurement.order))


def table_files() -> frozenset[str]:
    """Return the file names of all measurements' tables. Raise ConfigError as `measurements` does."""
    return frozenset(measurement.table.file for measurement in measurements())


def figures(runs: Sequence[Run]) -> dict[str, dict[str, Value]]:
    """Return the figures of each run, by its name, from all measurements that summarise their table."""
    by_run: dict[str, dict[str, Value]] = {run.name: {} for run in runs}
    for measurement in measurements():
        for name, row in figures_of(measurement, runs).items():
            by_run[name] = joined(by_run[name], row)
    return by_run


def joined(row: Mapping[str, Value], figures: Mapping[str, Value]) -> dict[str, Value]:
    """Return a row of summary.csv with a measurement's figures. Raise ConfigError if it has one already."""
    if taken := row.keys() & figures.keys():
        raise ConfigError(
            f"a measurement returns the figures {', '.join(sorted(taken))}, which summary.csv has from "
            "elsewhere: choose other names in its `summarise`"
        )
    return {**row, **figures}


def figures_of(measurement: Measurement, runs: Sequence[Run]) -> dict[str, dict[str, Value]]:
    """Return each run's figures from the measurement's table, by the run's name; None for those not finite.

    Raise ConfigError if `summarise` does not return one row per run.
    """
    if type(measurement).summarise is Measurement.summarise:
        return {}
    if (table := frame(runs, measurement.table)) is None:
        return {}
    figures: Any = measurement.summarise(table)
    if not isinstance(figures, type(table)):
        raise _wrong(measurement, "summarise", f"a {type(figures).__name__}")
    index = figures.index.tolist()
    if len({*index}) < len(index) or not {run.name for run in runs}.issuperset(index):
        raise _wrong(measurement, "summarise", f"a DataFrame with the index {index!r:.60}")
    rows = figures.to_dict("index")
    return {
        str(name): {str(column): cell(value) for column, value in row.items()} for name, row in rows.items()
    }


def curve_of(measurement: Measurement, table: "pandas.DataFrame") -> "pandas.DataFrame | None":
    """Return the curve of one run. Raise ConfigError if it is not what the contract of `curve` says."""
    curve: Any = measurement.curve(table)
    if curve is None:
        return None
    if not isinstance(curve, type(table)):
        raise _wrong(measurement, "curve", f"a {type(curve).__name__}")
    if twice := curve.index[curve.index.duplicated()].tolist():
        raise _wrong(measurement, "curve", f"a DataFrame with {twice[0]!r:.60} twice in its index")
    if words := {*curve.columns}.difference(curve.select_dtypes(["number", "bool"]).columns):
        raise _wrong(measurement, "curve", f"text in the column {min(map(str, words))}")
    if taken := {"arm", "run", measurement.axis} & {*curve.columns}:
        raise _wrong(measurement, "curve", f"a column named {min(taken)}")
    return curve


CONTRACTS = {
    "summarise": "one row per run and the runs' names as its index",
    "curve": "numbers only, each x once in its index, and no column named arm, run or as the axis",
}


def _wrong(measurement: Measurement, hook: str, returned: str) -> ConfigError:
    """Return the error for a hook that did not return what its contract says."""
    wanted = f"return a DataFrame with {CONTRACTS[hook]}"
    return ConfigError(f"measurement {measurement.name}: `{hook}` returned {returned}: {wanted}")


def cell(value: Any) -> Value:
    """Return a cell of a DataFrame as a plain value; a number that is not finite becomes None."""
    plain: Value = plain_value(value)
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


def plain_row(measurement: Measurement, row: Row) -> dict[str, Any]:
    """Return a row of the table with plain values. Raise ValueError if it does not fit the columns."""
    columns, optional = {*measurement.table.columns}, measurement.table.optional
    try:
        plain = {column: plain_value(value) for column, value in row.items()}
    except (AttributeError, RuntimeError, ValueError):  # not a mapping, or an array in place of a number
        plain = {}
    several = any(isinstance(value, list | tuple | dict) for value in plain.values())
    if several or not columns <= plain.keys() <= columns.union(optional):
        raise ValueError(
            f"measurement {measurement.name}: `measure` returned the row {row!r:.80}: return a mapping with "
            f"one number or text for each of {', '.join(measurement.table.columns)}"
        )
    return plain


def plain_value(value: Any) -> Any:
    """Return a number of NumPy, pandas or PyTorch as a Python number; anything else as it is."""
    return value.item() if hasattr(value, "item") else value
