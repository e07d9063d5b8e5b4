"""A report before it is laid out: its first screen, its chapters of sections, where its figures come from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from poslab.analysis.sheets import Sheet, sheet
from poslab.report.charts import Chart, LineChart, PanelChart
from poslab.report.tables import Table


@dataclass(frozen=True)
class Section:
    """What a reader sees under one heading, and the CSV files that it comes from beside those of its charts.

    A section with one table of its own title is that table: the heading stands there once.
    """

    name: str
    title: str
    about: str = ""  # what the section shows
    findings: tuple[str, ...] = ()  # conclusions and missing data, as sentences
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    sheets: Mapping[str, Sheet] = field(default_factory=dict)  # by the name of the file


def joined(sections: Iterable[Section]) -> tuple[Section, ...]:
    """Join sections with the same name under the heading of the first."""
    by_name: dict[str, Section] = {}
    for section in sections:
        first = by_name.setdefault(section.name, section)
        if first is not section:
            by_name[section.name] = replace(
                first,
                findings=(*first.findings, *section.findings),
                charts=(*first.charts, *section.charts),
                tables=(*first.tables, *section.tables),
                sheets={**first.sheets, **section.sheets},
            )
    return tuple(by_name.values())


def sheets_of(*tables: Table) -> dict[str, Sheet]:
    """Return the CSV files that tables are whole views of, by their names."""
    return {table.sources[0].removesuffix(".csv"): sheet(table.records) for table in tables}


@dataclass(frozen=True)
class Answer:
    """What a reader sees first: the answer in words, the figure that is tested, a table, how sure it is."""

    sentences: tuple[str, ...]
    belief: tuple[tuple[str, str], ...]  # how far to believe it, as labels with short values
    chart: LineChart | PanelChart | None
    table: Table


@dataclass(frozen=True)
class Chapter:
    """Sections on one matter, under what they come to in words."""

    name: str
    title: str
    findings: tuple[str, ...]
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Origin:
    """Where the figures come from, and how to reproduce them."""

    report_command: str
    commands: tuple[str, ...]  # that ran the study
    study: tuple[tuple[str, str], ...]  # what the finished runs have in common or differ in
    facts: tuple[tuple[str, str], ...]  # what has to be the same for the same figures to come out
    settings: Table | None  # what the arms differ in
    configured: str  # the run that `configuration` belongs to
    configuration: str
    sheets: Mapping[str, Sheet]


@dataclass(frozen=True)
class Document:
    """A whole report, before it is laid out."""

    name: str
    title: str  # the study's question or name, or what it compares
    compared: str  # its schemes and how many runs each has
    answer: Answer
    warnings: tuple[str, ...]  # what may make the answer wrong
    chapters: tuple[Chapter, ...]
    origin: Origin
    arms: Mapping[int, str]  # their labels, by the numbers of their looks
    terminal: Table  # the arms, as the terminal has them

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
        """Every CSV file by its name."""
        sheets = dict(chain.from_iterable(section.sheets.items() for section in self.sections))
        return sheets | dict(self.origin.sheets) | {chart.name: sheet(chart.rows) for chart in self.charts}
