"""A part of the report with figures and tables of its own, which the page and Markdown show alike."""

from collections.abc import Mapping
from dataclasses import dataclass

from poslab.report.charts import LineChart
from poslab.report.heat import HeatPanels
from poslab.report.panels import PanelChart
from poslab.report.sheets import Rows
from poslab.report.tables import Table


@dataclass(frozen=True)
class Section:
    """What a reader sees under one heading, and the CSV files it comes from."""

    name: str
    title: str
    about: str  # what the section shows
    findings: tuple[str, ...]  # what it says, and what is missing
    charts: tuple[LineChart | PanelChart | HeatPanels, ...]
    tables: tuple[Table, ...]
    sheets: Mapping[str, tuple[list[str], Rows]]  # columns and rows, by the name of the file

    @property
    def lines(self) -> list[LineChart]:
        return [chart for chart in self.charts if isinstance(chart, LineChart)]

    @property
    def panels(self) -> list[PanelChart]:
        return [chart for chart in self.charts if isinstance(chart, PanelChart)]
