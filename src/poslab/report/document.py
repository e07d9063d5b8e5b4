"""The content of a report before layout: its first screen, its chapters of sections, and its provenance."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from poslab.analysis.sheets import Sheet, sheet
from poslab.config.schema import ConfigError
from poslab.report.charts import Chart, LineChart, PanelChart
from poslab.report.tables import Table


@dataclass(frozen=True)
class Section:
    """The content under one heading, with its CSV files other than those of its charts.

    If a section has a table with the section's title, the heading is printed only once.
    """

    name: str
    title: str
    about: str = ""  # what the section shows
    findings: tuple[str, ...] = ()  # sentences on conclusions and on missing data
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    sheets: Mapping[str, Sheet] = field(default_factory=dict)  # by file name


def joined(sections: Iterable[Section]) -> tuple[Section, ...]:
    """Join sections that have the same name, under the heading of the first."""
    by_name: dict[str, Section] = {}
    for section in sections:
        first = by_name.setdefault(section.name, section)
        if first is not section:
            by_name[section.name] = replace(
                first,
                findings=(*first.findings, *section.findings),
                charts=(*first.charts, *section.charts),
                tables=(*first.tables, *section.tables),
                sheets=_together(first.sheets, section.sheets),
            )
    return tuple(by_name.values())


def _together(*files: Mapping[str, Sheet]) -> dict[str, Sheet]:
    """Return all CSV files, by their names. Raise ConfigError if two different ones have the same name."""
    together: dict[str, Sheet] = {}
    for name, content in chain.from_iterable(item.items() for item in files):
        if together.setdefault(name, content) != content:
            raise ConfigError(
                f"the report has two tables named {name}.csv: give the measurement another name or `family`"
            )
    return together


def sheets_of(*tables: Table) -> dict[str, Sheet]:
    """Return the first CSV file of each of these tables, which show all of its rows, by file name."""
    return {table.sources[0].removesuffix(".csv"): sheet(table.records) for table in tables}


@dataclass(frozen=True)
class Answer:
    """The first screen: the answer in words, the tested figure, a table, and how far to believe it."""

    sentences: tuple[str, ...]
    belief: tuple[tuple[str, str], ...]  # how far to believe it: labels with short values
    chart: LineChart | PanelChart | None
    table: Table


@dataclass(frozen=True)
class Chapter:
    """Sections on one subject, under a summary in words."""

    name: str
    title: str
    findings: tuple[str, ...]
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Origin:
    """The provenance of the figures, and how to reproduce them."""

    report_command: str
    commands: tuple[str, ...]  # the commands that ran the study
    facts: tuple[tuple[str, str], ...]  # what must be equal to obtain the same figures
    settings: Table | None  # the settings in which the arms differ
    configured: str  # the name of the run that has this `configuration`
    configuration: str
    sheets: Mapping[str, Sheet]


@dataclass(frozen=True)
class Document:
    """A whole report, before layout."""

    name: str
    title: str  # the study's question or name, or the arms it compares
    compared: str  # its schemes and the number of runs of each
    answer: Answer
    warnings: tuple[str, ...]  # reasons why the answer may be wrong
    chapters: tuple[Chapter, ...]
    origin: Origin
    arms: Mapping[int, str]  # labels of the arms, by the numbers of their looks
    terminal: Table  # the arms, as the terminal shows them

    @property
    def summary(self) -> str:
        """The answer, for the terminal."""
        return " ".join(self.answer.sentences)

    @property
    def sections(self) -> tuple[Section, ...]:
        """Every section, in the order of the page."""
        return tuple(chain.from_iterable(chapter.sections for chapter in self.chapters))

    @property
    def charts(self) -> tuple[Chart, ...]:
        """Every figure, in the order of their numbers."""
        first = () if self.answer.chart is None else (self.answer.chart,)
        return (*first, *chain.from_iterable(section.charts for section in self.sections))

    @property
    def sheets(self) -> dict[str, Sheet]:
        """Every CSV file, by its name."""
        charts = {chart.name: sheet(chart.rows) for chart in self.charts}
        return _together(*(section.sheets for section in self.sections), self.origin.sheets, charts)
