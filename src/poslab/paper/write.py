"""The paper kit of a study, reports/STUDY/paper/: figure, tables, methods, references, and a paper."""

from collections.abc import Sequence
from pathlib import Path

from poslab.analysis.facts import facts_sheet
from poslab.analysis.results import Results
from poslab.config.schema import CAUSAL
from poslab.paper.latex import latex_environment
from poslab.paper.methods import paragraph
from poslab.paper.panels import caption, draw, panels
from poslab.paper.references import bibliography, used
from poslab.paper.table import paper_table
from poslab.record.files import remove_unfinished, write_atomic
from poslab.record.reader import ReportError
from poslab.report.sections.answer import sentences

FOLDER = "paper"
SUFFIXES = (".tex", ".bib", ".pdf", ".pgf")
SETTING = "configuration."


def write_paper(results: Results, directory: Path, columns: Sequence[str] | None = None) -> Path:
    """Write the paper kit of `results` into `directory`/paper, and return that folder.

    It has figure.pdf (and figure.pgf if LaTeX is installed), table.tex, methods.tex, settings.tex,
    references.bib, and paper.tex, a two-column document of all of them. The same records give the same bytes.
    `columns` are those of table.tex (see table.choices). Raise ReportError for an unknown column, and if a
    model has another task than predicting the next token of a text.
    """
    if any(run.config.get("objective", CAUSAL) != CAUSAL for run in results.finished):
        raise ReportError(
            "paper=true needs models that predict the next token of a text, and this study has others: take "
            "its figures and tables from the files of its report"
        )
    table = paper_table(results, columns)
    folder = directory / FOLDER
    remove_unfinished(folder, lambda name: Path(name).suffix in SUFFIXES)
    charts = panels(results)
    drawn = draw(charts) if charts else {}
    for suffix, content in drawn.items():
        write_atomic(folder / f"figure.{suffix}", content)
    texts = {
        "table.tex": _fill("table.tex", table=table, results=results),
        "methods.tex": _fill("methods.tex", text="".join(paragraph(results))),
        "settings.tex": _fill("settings.tex", settings=_settings(results), results=results),
        "references.bib": bibliography(used(results.finished)),
        "paper.tex": _fill(
            "paper.tex",
            title=results.questions[0] if len(results.questions) == 1 else results.study,
            answer=" ".join(sentences(results)),
            charts=charts,
            caption=caption(charts),
            commands=results.commands,
            results=results,
        ),
    }
    for name, text in texts.items():
        write_atomic(folder / name, text)
    return folder


def _settings(results: Results) -> list[tuple[str, str]]:
    """Return the whole configuration of the run that represents the study, by key."""
    rows = [(str(row["key"]), str(row["value"])) for row in facts_sheet(results)[1]]
    return [(key.removeprefix(SETTING), value) for key, value in rows if key.startswith(SETTING)]


def _fill(template: str, **values: object) -> str:
    return latex_environment().get_template(template).render(**values)
