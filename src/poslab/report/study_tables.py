"""The tables of a study's finished runs, for the sections that measurements show of them."""

from typing import TYPE_CHECKING

from poslab.analysis.estimates import estimate_columns, estimates
from poslab.analysis.results import Results
from poslab.analysis.sheets import Rows, sheet
from poslab.config.text import plain
from poslab.measures import Measurement, cell, figures_of
from poslab.record.frames import frame
from poslab.report.cells import arm_column, loss
from poslab.report.document import Section
from poslab.report.tables import Column, Table

if TYPE_CHECKING:
    import pandas


class StudyTables:
    """The data for a measurement's section of the report."""

    def __init__(self, results: Results) -> None:
        self.results = results

    def table(self, measurement: Measurement) -> "pandas.DataFrame | None":
        """Return the rows of all finished runs with each run's arm; None where no run has any."""
        if (table := frame(self.results.finished, measurement.table)) is None:
            return None
        labels = {run.name: item.arm.label for item in self.results.arms for run in item.arm.finished}
        table.insert(1, "arm", table["run"].map(labels))
        return table

    def records(self, table: "pandas.DataFrame") -> Rows:
        """Return the rows of a table for a CSV file, with empty cells for missing numbers."""
        listed = table.to_dict("records")
        return [{str(column): cell(value) for column, value in row.items()} for row in listed]

    def by_arm(self, figures: "pandas.DataFrame") -> Rows:
        """Return figures over the seeds, one row per arm that has any, from one row per run by its name."""
        by_run = dict(zip(figures.index, self.records(figures), strict=True))
        rows: Rows = []
        for item in self.results.arms:
            if of_arm := [by_run[run.name] for run in item.arm.finished if run.name in by_run]:
                rows.append({"arm": item.arm.label, "context_length": item.arm.context_length})
                rows[-1]["seeds_finished"] = len(item.rows)
                rows[-1] |= estimate_columns(estimates(of_arm, figures.columns), figures.columns)
        return rows

    def default_section(self, measurement: Measurement) -> Section | None:
        """Return each figure of `summarise` by arm, over the seeds; None where there is none."""
        found = figures_of(measurement, self.results.finished)
        columns = list(dict.fromkeys(column for row in found.values() for column in row))
        if not columns:
            return None
        by_arm: Rows = []
        by_run: Rows = []
        for item in self.results.arms:
            of_arm = [found.get(run.name, {}) for run in item.arm.finished]
            by_arm.append({"arm": item.arm.label, "seeds_finished": len(item.rows)})
            by_arm[-1] |= estimate_columns(estimates(of_arm, columns), columns)
            for run, figures in zip(item.arm.finished, of_arm, strict=True):
                by_run.append({"arm": item.arm.label, "run": run.name, "seed": run.seed})
                by_run[-1] |= {column: figures.get(column) for column in columns}
        name = measurement.family
        title = name.replace("_", " ").capitalize()
        about = plain((type(measurement).__doc__ or "").partition("\n")[0], 300)
        views = (Column(column, column.replace("_", " "), loss) for column in columns)
        sources = f"{name}_arms.csv", f"{name}.csv"
        table = Table(title, about, (arm_column(self.results), *views), by_arm, sources)
        sheets = {f"{name}_arms": sheet(by_arm), name: sheet(by_run)}
        return Section(name, title, tables=(table,), sheets=sheets)
