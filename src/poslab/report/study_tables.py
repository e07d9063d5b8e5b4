"""The tables of a study's finished runs, from which measurements build their sections."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from poslab.analysis.curves import Point, points
from poslab.analysis.estimates import estimate_columns, estimates
from poslab.analysis.results import Results
from poslab.analysis.sheets import Rows, sheet
from poslab.analysis.statistics import Estimate, estimate
from poslab.config.text import plain
from poslab.measures import Measurement, cell, curve_of, figures_of
from poslab.record.frames import DataFrame, Numbers, frame
from poslab.record.measures import Value
from poslab.report.cells import arm_column, bars, lines, loss
from poslab.report.charts import HeatPanel, HeatPanels, LineChart, Series, octaves
from poslab.report.document import Section
from poslab.report.formatting import quantity
from poslab.report.tables import Column, Table

Place = tuple[str, float, float]  # the arm, row and column of a shaded number

SCHEMES = Section(  # shared by all measurements of trained schemes
    "schemes",
    "What the schemes do",
    "Measured on the trained models: what each scheme adds to the logits, how it rotates queries and keys, "
    "and how far attention reaches as a result. Layers and heads are counted from 0.",
)


class StudyTables:
    """The data of a study from which a measurement builds its section of the report."""

    def __init__(self, results: Results) -> None:
        self.results = results

    def table(self, measurement: Measurement) -> DataFrame | None:
        """Return the rows of all finished runs with a column for the arm, or None if no run has rows."""
        if (table := frame(self.results.finished, measurement.table)) is None:
            return None
        labels = {run.name: item.arm.label for item in self.results.arms for run in item.arm.finished}
        table.insert(1, "arm", table["run"].map(labels))
        return table

    def records(self, table: DataFrame) -> Rows:
        """Return the rows of a table for a CSV file, with empty cells for missing numbers."""
        listed = table.to_dict("records")
        return [{str(column): cell(value) for column, value in row.items()} for row in listed]

    def by_arm(self, figures: DataFrame) -> Rows:
        """Return estimates over the seeds, a row per arm with runs in `figures`, which has a row per run."""
        by_run = dict(zip(figures.index, self.records(figures), strict=True))
        return [
            {
                "arm": item.arm.label,
                "context_length": item.arm.context_length,
                "seeds_finished": len(item.rows),
                **estimate_columns(estimates(of_arm, figures.columns), figures.columns),
            }
            for item in self.results.arms
            if (of_arm := [by_run[run.name] for run in item.arm.finished if run.name in by_run])
        ]

    def view(
        self,
        section: Section,
        columns: Iterable[Column],
        by_arm: Rows,
        by_run: Rows,
        files: tuple[str, str],
        title: str = "",
        caption: str = "",
        **more: Any,
    ) -> Section:
        """Return a section with a table of arms and two CSV files, one by arm and one by run.

        The first column of the table names the arm. The title defaults to that of the section. `more` are
        further fields of the section.
        """
        sources = tuple(f"{name}.csv" for name in files)
        named = (arm_column(self.results), *columns)
        table = Table(title or section.title, caption, named, by_arm, sources)
        sheets = dict(zip(files, map(sheet, (by_arm, by_run)), strict=True))
        return replace(section, tables=(table,), sheets=sheets, **more)

    def heat(
        self,
        words: tuple[str, str, str],
        axes: tuple[str, str, str],
        values: Numbers,
        titles: Sequence[Callable[[float], str]],
        shares: bool,
        beside: Callable[[Place], dict[str, Value]] = lambda place: {},
    ) -> HeatPanels:
        """Return one panel per arm, with means over the seeds by row and column.

        The index of `values` is arm, row and column; `titles` formats a row and a column. If the values are
        `shares`, all panels have the same rows and columns, otherwise those of their arm. `words` are name,
        title and caption, `axes` the labels of rows, columns and numbers. `beside` adds cells to the CSV.
        """
        by_place = {place: estimate(of.tolist()) for place, of in values.groupby(level=[0, 1, 2])}
        panels: list[HeatPanel] = []
        known: dict[Place, Estimate] = {}
        for item in self.results.arms:
            label = item.arm.label
            places = [place for place in by_place if shares or place[0] == label]
            rows, columns = (sorted({place[i] for place in places}) for i in (1, 2))
            cells = tuple(tuple(by_place.get((label, row, column)) for column in columns) for row in rows)
            if any(map(any, cells)):
                row_titles, column_titles = tuple(map(titles[0], rows)), tuple(map(titles[1], columns))
                panels.append(
                    HeatPanel(item.arm.look, label, len(item.rows), row_titles, column_titles, cells)
                )
                of_arm = [(label, row, column) for row in rows for column in columns]
                known |= {place: at for place in of_arm if (at := by_place.get(place)) is not None}
        listed = [
            dict(zip(values.index.names, place, strict=True)) | at.row | beside(place)
            for place, at in known.items()
        ]
        high = 1.0 if shares else max(at.mean for at in known.values())
        return HeatPanels(*words, *axes, high, shares, tuple(panels), listed)

    def default_section(self, measurement: Measurement) -> Section | None:
        """Return all figures of `summarise` and lines of `curve`, as means by arm; None without figures."""
        found = figures_of(measurement, self.results.finished)
        columns = list(dict.fromkeys(column for row in found.values() for column in row))
        if not columns:
            return None
        by_arm: Rows = [
            {
                "arm": item.arm.label,
                "seeds_finished": len(item.rows),
                **estimate_columns(estimates(item.rows, columns), columns),
            }
            for item in self.results.arms
        ]
        by_run: Rows = [
            {
                "arm": item.arm.label,
                "run": run.name,
                "seed": run.seed,
                **{column: row.get(column) for column in columns},
            }
            for item in self.results.arms
            for run, row in zip(item.arm.finished, item.rows, strict=True)
        ]
        name = measurement.family
        title = name.replace("_", " ").capitalize()
        about = plain((type(measurement).__doc__ or "").partition("\n")[0], 300)
        views = (Column(column, column.replace("_", " "), loss) for column in columns)
        section = Section(name, title, charts=self.lines(measurement))
        files = file_name(f"{name}_arms"), file_name(name)
        return self.view(section, views, by_arm, by_run, files, caption=about)

    def means(
        self, rows: DataFrame, column: str, shift: int = 0, axis: str = "distance"
    ) -> tuple[Series, ...]:
        """Return one line per arm, with means over its seeds by `axis` + `shift`."""
        return lines(
            self.results, lambda item: over_seeds(rows[rows.arm == item.arm.label], column, shift, axis)
        )

    def lines(self, measurement: Measurement) -> tuple[LineChart, ...]:
        """Return a chart of each line of `curve` that has numbers, with means over the seeds by arm.

        If x includes 0, which a logarithmic axis cannot show, x + 1 is drawn instead.
        """
        import pandas

        if not measurement.axis or (table := self.table(measurement)) is None:
            return ()
        groups = table.groupby(["arm", "run"], sort=False)
        by_run = {run: curve_of(measurement, rows) for run, rows in groups}
        curves = {run: curve for run, curve in by_run.items() if curve is not None}
        if not curves:
            return ()
        whole = pandas.concat(curves, names=["arm", "run", measurement.axis]).reset_index()
        shift = int((whole[measurement.axis] == 0).any())
        axis, title = (name.replace("_", " ").capitalize() for name in (measurement.axis, measurement.family))
        charts: list[LineChart] = []
        for column in whole.columns[3:]:
            if not (series := self.means(whole, column, shift, measurement.axis)):
                continue  # no run has a number
            line = str(column).replace("_", " ")
            name = file_name(f"{measurement.family}_{column}")
            while name in [chart.name for chart in charts]:
                name += f"_{len(charts)}"
            charts.append(
                LineChart(
                    name,
                    f"{title}: {line}",
                    bars(self.results),
                    f"{axis} + 1" if shift else axis,
                    line.capitalize(),
                    series,
                    octaves(series, quantity),
                )
            )
        return tuple(charts)


def file_name(name: str) -> str:
    """Return the name with which a figure or table is written as files: `a/b` becomes a_b."""
    return re.sub(r"[^\w-]", "_", name)


def over_seeds(rows: DataFrame, column: str, shift: int = 0, axis: str = "distance") -> tuple[Point, ...]:
    """Return means over the seeds by `axis` + `shift`. Values equal in all seeds have no interval."""
    by_seed: list[dict[Any, float]] = [
        {
            (float(x + shift), ((axis, x),)): float(value)
            for x, value in zip(of_run[axis].tolist(), of_run[column].tolist(), strict=True)
            if math.isfinite(value) and x + shift > 0
        }
        for _, of_run in rows.groupby("run", sort=False)
    ]
    means = points(by_seed)
    return tuple(replace(point, half_width=None) if point.half_width == 0 else point for point in means)
