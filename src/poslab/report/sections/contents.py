"""The chapters of a report in reading order, and the document that they form.

To add a figure or table, write a function in one file of this folder and call it from its section. To add a
section, add such a file and list its function in `CHAPTERS`; the page, Markdown and files on disk follow.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from poslab.analysis import titles
from poslab.analysis.results import Results
from poslab.measures import measurements
from poslab.report import cells, verdict
from poslab.report.charts import LineChart, PanelChart
from poslab.report.document import Chapter, Document, Section, joined
from poslab.report.sections import (
    convergence,
    cost,
    extrapolation,
    ladder,
    learning_rates,
    longer,
    overview,
    pretrained,
    provenance,
    rescalings,
    scaling,
    signal,
    texts,
)
from poslab.report.sections.answer import answer
from poslab.report.study_tables import StudyTables
from poslab.report.warnings import remarks_on, warnings_of

Findings = Callable[[Results], Iterable[str]]
Sections = tuple[Callable[[Results], Section | None], ...]

MADE = "made"  # the chapter on runs, which covers the whole study

# The name, title, summary sentences and sections of each chapter.
CHAPTERS: tuple[tuple[str, str, Findings, Sections], ...] = (
    ("ladder", "Budget and size", lambda results: (), (ladder.section, scaling.section)),
    (
        "past",
        "Past the training length",
        verdict.extrapolation,
        (
            overview.arms,
            pretrained.section,
            overview.differences,
            signal.section,
            extrapolation.section,
            longer.section,
            rescalings.section,
            overview.protocols,
        ),
    ),
    (
        "learning",
        "How fast it learns",
        verdict.convergence,
        (convergence.section, cost.section, learning_rates.section),
    ),
    ("what", "What the schemes do", lambda results: (), ()),
    (MADE, "How it was run", remarks_on, (overview.runs, overview.earlier)),
)


def _sections(
    results: Results, chapter: str, builds: Sequence[Callable[[Results], Section | None]]
) -> tuple[Section, ...]:
    """Return the sections of a chapter, with those of measurements last."""
    study = StudyTables(results)
    measured = (item.section(study) for item in measurements() if item.chapter == chapter)
    built = (*(build(results) for build in builds), *measured)
    return joined(section for section in built if section is not None)


def _without(section: Section, figure: LineChart | PanelChart | None) -> Section:
    """Return the section without a figure that the first screen shows."""
    charts = (chart for chart in section.charts if figure is None or chart.name != figure.name)
    return replace(section, charts=tuple(charts))


def document(results: Results) -> Document:
    """Return the whole report of these results. With several texts, all chapters but the last go by text."""
    chapters = []
    first_screen = answer(results)
    rungs, past, learning, *rest = CHAPTERS
    first = (learning, past) if results.is_about_learning else (past, learning)
    for chapter, title, findings, builds in (rungs, *first, *rest):
        if chapter == "learning" and not results.one_objective:  # such losses are not comparable
            findings, builds = (lambda results: ()), (cost.section, learning_rates.section)
        by_text = {} if chapter == MADE else texts.names(results)
        sentences = [] if by_text else [*findings(results)]
        sections = [texts.section(results)] if by_text and chapter == "past" else []
        if not by_text:
            sections = [_without(item, first_screen.chart) for item in _sections(results, chapter, builds)]
        for name, part in by_text.items():
            sentences += [f"{part.text}: {finding}" for finding in findings(part)]
            sections += [texts.of_text(item, name, part.text) for item in _sections(part, chapter, builds)]
        if any(section.charts or section.tables for section in sections):
            chapters.append(Chapter(chapter, title, tuple(sentences), tuple(sections)))
    parts = texts.names(results) or {"": results}
    looks = {label: look for part in parts.values() for label, look in cells.looks(part).items()}
    tables = {name: overview.terminal_table(part, looks) for name, part in parts.items()}
    listed = [{**row, "text": name} for name, table in tables.items() for row in table.records]
    # Texts may differ in seeds and lengths: use the columns of the text that has the most.
    fullest = max(parts, key=lambda name: (parts[name].seeds > 1, len(tables[name].columns)))
    return Document(
        name=results.study,
        title=titles.title(results),
        compared=titles.compared(results),
        answer=first_screen,
        warnings=tuple(warnings_of(results)),
        chapters=tuple(chapters),
        origin=provenance.origin(results, first_screen.sentences[0]),
        arms={item.arm.look: item.arm.label for item in results.arms},
        terminal=replace(tables[fullest], records=listed),
    )
