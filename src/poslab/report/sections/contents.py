"""The sections of a report in the order that a reader sees them, and the document that they make.

A new figure or table is a function in one file of this folder, called by its section. A new section is such a
file and its function's name in `SECTIONS`; the page, Markdown and the files on disk follow. Files that only
some reports have are in the `FILES` of the module, and a new module's `FILES` in `OPTIONAL`.
"""

from collections.abc import Callable

from poslab.report.analysis.results import Results
from poslab.report.document import Document, Section
from poslab.report.sections import (
    attention,
    convergence,
    extrapolation,
    learning_rates,
    overview,
    provenance,
    rescalings,
    retrieval,
    schemes,
)
from poslab.report.verdict import verdict
from poslab.report.warnings import notes

SECTIONS: tuple[Callable[[Results], Section | None], ...] = (
    overview.arms,
    overview.differences,
    overview.figures,
    rescalings.section,
    retrieval.section,
    schemes.section,
    overview.protocols,
    learning_rates.section,
    overview.runs,
)

# Every file that some reports lack: what an earlier report left and the present one has not is removed.
OPTIONAL = (
    *(*extrapolation.FILES, *convergence.FILES, *learning_rates.FILES, *rescalings.FILES),
    *(*retrieval.FILES, *schemes.FILES, *attention.FILES, *provenance.FILES),
)


def document(results: Results) -> Document:
    """Everything that the report says of these results."""
    sections = [build(results) for build in SECTIONS]
    return Document(
        name=results.study,
        summary=verdict(results),
        facts=tuple(provenance.facts(results)),
        notes=notes(results),
        sections=tuple(section for section in sections if section is not None),
        origin=provenance.origin(results),
        arms=tuple(item.arm.label for item in results.arms),
        paper_table=overview.paper_table(results),
        terminal=tuple(overview.terminal_rows(results)),
    )
