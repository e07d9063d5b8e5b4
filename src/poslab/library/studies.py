"""A study for notebooks and scripts: its tables by column, and the figures of its report."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from poslab.analysis.comparisons import alike
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.rescalings import measured
from poslab.analysis.results import Results, figures, subject_of
from poslab.analysis.spread import difference
from poslab.analysis.statistics import Difference, Ratio, ratio
from poslab.config.checking import did_you_mean
from poslab.measures import measurements
from poslab.record.archive import load_available
from poslab.record.losses import TRAINED, LossSum
from poslab.record.measures import Value, crossing, is_in_bits, mean_bits, mean_loss
from poslab.record.reader import ReportError, Run
from poslab.report.document import Document
from poslab.report.sections.contents import document
from poslab.report.study_tables import StudyTables

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

Item = TypeVar("Item")
Table = dict[str, list[Value]]  # columns of equal length by name, for pandas.DataFrame and polars.DataFrame

RUN_COLUMNS = ("study", "run", "arm", "pos", "attention", "seed")  # the first columns of all tables of runs


class Study:
    """The records of a study, as `poslab.read` returns them. Losses are nats per token, or named otherwise.

    Each table is a mapping of columns, for `pandas.DataFrame(table)` and `polars.DataFrame(table)`. None
    means not measured or not defined.
    """

    def __init__(self, results: Results) -> None:
        self._results = results

    @property
    def name(self) -> str:
        """The study's name; for several studies, all names."""
        return self._results.study

    @property
    def runs(self) -> Table:
        """A row for every run, finished or not, with the columns of summary.csv, such as `sliding_8x`."""
        return self.tables["summary"]

    @property
    def curves(self) -> Table:
        """A row for every validation of a run: `step`, training `tokens` and `seconds` so far, `loss`."""
        return _columns(
            columns | {"step": row.step, "tokens": row.tokens, "seconds": row.seconds}
            | _losses([LossSum(row.nll, row.scored, row.bytes)])
            for run, columns in self._of_runs()
            for row in run.validations
        )  # fmt: skip

    @property
    def extrapolation(self) -> Table:
        """A row for every run, rotation, protocol and length: `length` in tokens, `multiple` of L, `loss`.

        `rescale` is none for the model as trained; `protocol` is non_overlapping, sliding, or matched:
        non-overlapping windows scored on the targets of the sliding ones.
        """
        return _columns(
            columns | {"rescale": rescale, "protocol": protocol, "multiple": multiple}
            | {"length": round(multiple * run.context_length)} | _losses(scored.values())
            for run, columns in self._of_runs()
            for rescale in (TRAINED, *run.rescaled)
            for (protocol, multiple), scored in measured(run, rescale).segments.items()
        )  # fmt: skip

    @property
    def positions(self) -> Table:
        """A row for every run, rotation and position in windows of the longest length, from 0: `loss`."""
        return _columns(
            columns | {"rescale": rescale, "position": position} | _losses([stretch])
            for run, columns in self._of_runs()
            for rescale in (TRAINED, *run.rescaled)
            for position, stretch in sorted(measured(run, rescale).positions.items())
        )

    def table(self, name: str) -> "pandas.DataFrame":
        """Return a table of the runs, such as "extrapolation", "probe" or that of your own measurement.

        It has all rows in the files of finished runs, with the columns run, arm, pos, attention and seed
        before those of the file. Raise ReportError if no run has rows in a table of that name.
        """
        by_name = {Path(measurement.table.file).stem: measurement for measurement in measurements()}
        study = StudyTables(self._results)
        table = study.table(by_name[name]) if name in by_name else None
        if table is None:
            names = sorted(known for known, item in by_name.items() if study.table(item) is not None)
            near = did_you_mean(name, names)
            raise ReportError(f"{self.name} has no table {name!r}{near}; it has {', '.join(names)}")
        return table

    @cached_property
    def tables(self) -> Mapping[str, Table]:
        """Every CSV file of the report by name, such as `arms`, `pairs` and `claims` (docs/report.md)."""
        return {name: _columns(rows, columns) for name, (columns, rows) in self._document.sheets.items()}

    def config(self, arm: str) -> Mapping[str, Any]:
        """Return the configuration of an arm's first finished run. Raise ReportError for an unknown arm."""
        return self._arm(arm).arm.finished[0].config

    def by_seed(self, arm: str, figure: str) -> dict[int, float]:
        """Return a figure (a column of `runs`) of an arm's finished runs, by seed. Raise ReportError."""
        return self._arm(arm).by_seed(self._figure(figure))

    def difference(self, arm: str, baseline: str, figure: str) -> Difference | None:
        """Return an arm minus a baseline on a figure, paired by seed; p is not corrected for multiple tests.

        None if they share no seed, or if their losses are not comparable: on different texts, in windows of
        different lengths, or from different evaluations. Raise ReportError for an unknown arm or figure.
        """
        compared, base = self._arm(arm), self._arm(baseline)
        self._figure(figure)
        if not alike([compared], base.arm, is_in_bits(figure)):
            return None
        return difference(compared, base, figure)

    def time_ratio(self, arm: str, baseline: str) -> Ratio | None:
        """Return the ratio of an arm's tokens to a baseline's, both until the study's target loss.

        The target: the reference's loss at 75 % of its budget. None without a common seed. Raise ReportError.
        """
        return ratio(*(self._arm(label).times.get("", {}) for label in (arm, baseline)))

    def tokens_to(self, arm: str, loss: float) -> dict[int, float | None]:
        """Return, by seed, the training tokens until an arm's finished runs reach a validation loss.

        None: not reached. Interpolated between validations, linearly in log(tokens). Raise ReportError.
        """
        reached = {run.seed: crossing(run.validations, loss) for run in self._arm(arm).arm.finished}
        return {seed: None if point is None else point.tokens for seed, point in reached.items()}

    def _arm(self, label: str) -> ArmFigures:
        """Return the arm with that label. Raise ReportError if the study has no finished run of it."""
        finished = {item.arm.label: item for item in self._results.arms if item.rows}
        return self._named("arm", label, finished)

    def _figure(self, name: str) -> str:
        """Return the name of a figure that at least one run has. Raise ReportError if none has it."""
        rows = [row for item in self._results.arms for row in item.rows]
        return self._named("figure", name, {figure: figure for row in rows for figure in row})

    def _named(self, kind: str, name: str, known: Mapping[str, Item]) -> Item:
        """Return the item with that name. Raise ReportError if there is none."""
        if name not in known:
            near = did_you_mean(str(name), known)
            raise ReportError(f"{self.name} has no {kind} {name!r}{near}; it has {', '.join(known)}")
        return known[name]

    @property
    def figures(self) -> tuple[str, ...]:
        """The names of the report's figures, in the report's order."""
        return tuple(chart.name for chart in self._document.charts)

    def figure(self, name: str) -> "Figure":
        """Draw a figure of the report, one or two columns of a paper wide. Raise ReportError."""
        charts = {chart.name: chart for chart in self._document.charts}
        chart = self._named("figure", name, charts)
        from poslab.report.render.paper import laid_out

        return laid_out(chart)

    @cached_property
    def _document(self) -> Document:
        return document(self._results)

    def _of_runs(self) -> Iterator[tuple[Run, dict[str, Value]]]:
        """Yield every run with its RUN_COLUMNS."""
        for run, row in zip(self._results.runs, self._results.rows, strict=True):
            yield run, {name: row.get(name) for name in RUN_COLUMNS}


def read(
    study: str = "ablation",
    *,
    runs: str | PathLike[str] = "runs",
    reports: str | PathLike[str] = "reports",
    reference: str | None = None,
    primary: str | None = None,
) -> Study:
    """Read a study's records and check their checksums; name several studies with commas between them.

    Of `ablation`, the study of commands without study=, read only the runs of the last command, as its report
    does. `runs` is the folder with the runs of all studies. A study with no runs there is read from the
    records archived beside its report in the folder `reports`. `reference` is the label of the arm that the
    others are compared with, and `primary` the figure that is tested (sliding_8x, loss_8x, ...); both default
    to those of the study's report. Raise a one-line ReportError if there is no such study, arm or figure, or
    no finished run.
    """
    records = load_available(study, Path(runs).expanduser(), Path(reports).expanduser())
    return Study(figures(records, subject_of(study), reference, primary))


def _losses(sums: Iterable[LossSum]) -> dict[str, Value]:
    parts = list(sums)
    return {
        "loss": mean_loss(parts),
        "bits_per_byte": mean_bits(parts),
        "scored_tokens": sum(part.tokens for part in parts),
    }


def _columns(rows: Iterable[Mapping[str, Value]], columns: Sequence[str] = ()) -> Table:
    """Return the rows as columns, each with values of one type, as table libraries require."""
    listed = list(rows)
    names = dict.fromkeys([*columns, *(key for row in listed for key in row)])
    return {name: _of_one_type([row.get(name) for row in listed]) for name in names}


def _of_one_type(values: list[Value]) -> list[Value]:
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {int, float}:
        return [float(value) if isinstance(value, int) else value for value in values]
    return values if len(kinds) <= 1 else [None if value is None else str(value) for value in values]
