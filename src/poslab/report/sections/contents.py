"""The chapters of a report in the order that a reader sees them, and the document that they make.

A new figure or table is a function in one file of this folder, called by its section. A new section is such a
file and its function's name in one of the `CHAPTERS`; the page, Markdown and the files on disk follow. Files
that only some reports have are in the `FILES` of the module, and a new module's `FILES` in `OPTIONAL`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from poslab.analysis.results import Results
from poslab.report import verdict
from poslab.report.cells import arms
from poslab.report.document import Chapter, Document, Section
from poslab.report.sections import (
    attention,
    convergence,
    cost,
    extrapolation,
    learning_rates,
    overview,
    provenance,
    rescalings,
    retrieval,
    schemes,
)
from poslab.report.sections.answer import answer, paper_table
from poslab.report.warnings import remarks_on, warnings_of


@dataclass(frozen=True)
class Plan:
    """What a chapter is made of."""

    name: str
    title: str
    findings: Callable[[Results], Sequence[str]]
    sections: tuple[Callable[[Results], Section | None], ...]


CHAPTERS = (
    Plan(
        "past",
        "Past the training length",
        verdict.extrapolation,
        (
            overview.arms,
            overview.differences,
            extrapolation.section,
            rescalings.section,
            retrieval.section,
            overview.protocols,
        ),
    ),
    Plan(
        "learning",
        "How fast it learns",
        verdict.convergence,
        (convergence.section, cost.section, learning_rates.section),
    ),
    Plan("what", "What the schemes do", lambda results: (), (schemes.section,)),
    Plan(
        "made",
        "How it was made",
        lambda results: (*verdict.belief(results), *remarks_on(results)),
        (overview.runs,),
    ),
)

# Every file that some reports lack: what an earlier report left and the present one has not is removed.
OPTIONAL = (
    *(*overview.FILES, *cost.FILES),
    *(*extrapolation.FILES, *convergence.FILES, *learning_rates.FILES, *rescalings.FILES),
    *(*retrieval.FILES, *schemes.FILES, *attention.FILES, *provenance.FILES),
)


def document(results: Results) -> Document:
    """Everything that the report says of these results."""
    chapters = [_chapter(plan, results) for plan in CHAPTERS]
    return Document(
        name=results.study,
        title=results.questions[0] if len(results.questions) == 1 else results.study,
        answer=answer(results),
        warnings=tuple(warnings_of(results)),
        chapters=tuple(one for one in chapters if any(part.charts or part.tables for part in one.sections)),
        origin=provenance.origin(results),
        arms={number: item.arm.label for number, item in arms(results)},
        paper_table=paper_table(results),
        terminal=tuple(overview.terminal_rows(results)),
    )


def _chapter(plan: Plan, results: Results) -> Chapter:
    sections = (build(results) for build in plan.sections)
    return Chapter(
        plan.name,
        plan.title,
        tuple(plan.findings(results)),
        tuple(section for section in sections if section is not None),
    )
