"""What trained models are measured for: one file a measurement, found by its name.

A measurement is a module of this package, or of an installed package that declares it (entry points of the
group `poslab.measures`), with one public subclass of `Measurement`. Its table lies beside the others of a
run, its figures stand in summary.csv, its section in the report and its curve in W&B, without another edit.
docs/extending.md has an example.

PyTorch is imported inside `measure`: a report reads and shows the tables without it.
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

Row = Mapping[str, Any]
Result = TypeVar("Result")


class Progress(Protocol):
    """Where the state of the work is shown."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """A part of the work, which lasts as long as the context."""

    def share(self, name: str, share: float) -> None:
        """`share` of the phase is done, between 0 and 1; `name` is what is being done."""


@dataclass(frozen=True)
class Trained:
    """A trained model as a measurement finds it, under its resolved configuration and with its text."""

    gpt: "GPT"
    config: RunConfig
    corpus: "Corpus"
    progress: Progress
    # The model trained on without its rotation, or None where that training diverged.
    without_positions: "Callable[[], GPT | None]"
    _results: dict[Any, Any] = field(default_factory=dict)

    def once(self, compute: "Callable[[Trained], Result]") -> Result:
        """What `compute` returns for this model, computed once for all measurements that ask for it."""
        if compute not in self._results:
            self._results[compute] = compute(self)
        return self._results[compute]


class Measurement:
    """The contract of a measurement. `columns` or `table` is required, the rest is optional."""

    name: ClassVar[str]  # that of its module
    columns: ClassVar[tuple[str, ...]]  # of its table, NAME.csv in a run's folder
    table: ClassVar[TableSchema]  # in place of `columns`, where the file has another name
    order: ClassVar[int] = 100  # among the measurements, of measuring and in a chapter of the report
    chapter: ClassVar[str] = "past"  # of the report: past, learning or what
    # The charts of loggers are `family`/<line> over `family`/<axis>; by default the module's name.
    family: ClassVar[str]
    axis: ClassVar[str] = ""  # the name of their x; none: no charts
    reads_text: ClassVar[bool] = True  # False: models that trained without text have it, too

    def __init_subclass__(cls) -> None:
        cls.name = cls.__module__.rpartition(".")[2]
        cls.family = cls.__dict__.get("family", cls.name)
        if "table" not in cls.__dict__:
            cls.table = TableSchema(f"{cls.name}.csv", cls.columns)

    def wanted(self, config: RunConfig) -> bool:
        """Return whether runs of a configuration are measured."""
        return True

    def measure(self, trained: Trained) -> Iterable[Row] | None:
        """Return the rows of the table; None where the model has nothing of the kind, which writes no table.

        Sums beside their counts, not means, so that figures can be pooled. A measurement that only adds
        figures of another one's table, such as `table = EXTRAPOLATION`, does not override it.
        """
        return None

    def summarise(self, table: "pandas.DataFrame") -> "pandas.DataFrame":
        """Return the figures of runs, a row per run, as columns of summary.csv that it does not have yet.

        `table` holds the rows of all finished runs of a study, with the columns run, pos, attention and seed
        before its own.
        """
        return table[["run"]].drop_duplicates().set_index("run")

    def curve(self, table: "pandas.DataFrame") -> "pandas.DataFrame | None":
        """Return a line per column of one run, over the index: numbers, each x once.

        Loggers draw it, and the default `section` its means over the seeds by arm.
        """
        return None

    def sheet(self, table: "pandas.DataFrame") -> "pandas.DataFrame | None":
        """Return the table that W&B has of one run, by default the whole table where there is a curve."""
        return table[[*self.table.columns]] if self.axis else None

    def answer(self, study: "StudyTables") -> Iterable[str]:
        """Return sentences for the answer that a report begins with."""
        return ()

    def lead(self, study: "StudyTables") -> "tuple[LineChart | PanelChart, Table] | None":
        """Return the figure and the table that a report begins with, where its study tests no loss."""
        return None

    def section(self, study: "StudyTables") -> "Section | None":
        """Return what the report shows, by default each figure of `summarise` by arm; None for nothing.

        Sections of one name, of several measurements, stand under one heading, which is that of the first.
        """
        return study.default_section(self)


def wanted(config: RunConfig) -> list["Measurement"]:
    """Return the measurements of runs of a configuration."""
    has_text = build_objective(config.objective).reads_text
    return [
        measurement
        for measurement in measurements()
        if (has_text or not measurement.reads_text) and measurement.wanted(config)
    ]


@cache
def measurements() -> tuple[Measurement, ...]:
    """Return every measurement of poslab and of installed packages, in their order.

    Raises ConfigError where an installed package declares one that cannot be imported.
    """
    names = part_names(__name__)
    found = [find(name, Measurement, __name__, "measurement")() for name in names]
    return tuple(sorted(found, key=lambda measurement: measurement.order))


def table_files() -> frozenset[str]:
    """Return the names of the tables of all measurements. Raises ConfigError as `measurements` does."""
    return frozenset(measurement.table.file for measurement in measurements())


def figures(runs: Sequence[Run]) -> dict[str, dict[str, Value]]:
    """Return the figures of each run, by its name, of all measurements that summarise their table."""
    found: dict[str, dict[str, Value]] = {run.name: {} for run in runs}
    for measurement in measurements():
        for name, row in figures_of(measurement, runs).items():
            found[name] = joined(found[name], row)
    return found


def joined(row: Mapping[str, Value], figures: Mapping[str, Value]) -> dict[str, Value]:
    """Return a row of summary.csv and a measurement's figures. Raises ConfigError where it has one."""
    if taken := row.keys() & figures.keys():
        raise ConfigError(
            f"a measurement gives the figures {', '.join(sorted(taken))}, which summary.csv has from "
            "elsewhere: choose other names in its `summarise`"
        )
    return {**row, **figures}


def figures_of(measurement: Measurement, runs: Sequence[Run]) -> dict[str, dict[str, Value]]:
    """Return the figures of each run that has the measurement's table, by its name, None where one is NaN."""
    if type(measurement).summarise is Measurement.summarise:
        return {}
    if (table := frame(runs, measurement.table)) is None:
        return {}
    rows = measurement.summarise(table).to_dict("index")
    return {
        str(name): {str(column): cell(value) for column, value in row.items()} for name, row in rows.items()
    }


def cell(value: Any) -> Value:
    """Return a cell of a DataFrame as a plain value, None where it is no number."""
    plain: Value = plain_value(value)
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


def plain_value(value: Any) -> Any:
    """Return a number of NumPy, pandas or PyTorch as one of Python."""
    return value.item() if hasattr(value, "item") else value
