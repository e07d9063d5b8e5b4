"""Write a report from run records: of one study, of several studies, or of chosen runs."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from poslab.analysis.results import Results, Subject, figures, gather, subject_of
from poslab.analysis.sheets import Sheet
from poslab.config.text import counted, plain
from poslab.record.archive import ARCHIVE, archived_runs, is_same, load_available, pack, unpack
from poslab.record.files import remove_unfinished, write_atomic, write_table
from poslab.record.measures import Value
from poslab.record.reader import Records, ReportError, load_chosen
from poslab.record.schema import TABLE_SUFFIX
from poslab.record.study_list import studies
from poslab.report.charts import FORMATS
from poslab.report.document import Document
from poslab.report.held_out import HELD_OUT
from poslab.report.listed import PAGE, PICTURE, write_list
from poslab.report.sections.contents import document as document_of

Kit = Callable[[Results, Path], Path]  # writes more files beside the report and returns their folder

# The suffixes of all files of a report.
SUFFIXES = {TABLE_SUFFIX, ".json", ".md", ".html", ".xz", *(f".{kind}" for kind in FORMATS)}
WRITTEN = "files.json"  # lists the tables and figures, so that the next report can remove stale ones
TABLE_OR_FIGURE = re.compile(rf"[\w-]+\.csv|figures/[\w-]+\.({'|'.join(FORMATS)})")
FORMULA = re.compile(r"[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-]")  # how a spreadsheet formula begins
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Report:
    """A report on disk.

    `notices` are lines for the terminal: the scored held-out text, and where the records are archived.
    """

    directory: Path
    document: Document
    notices: tuple[str, ...] = ()

    @property
    def page(self) -> Path:
        return self.directory / PAGE


def write_report(
    study: str,
    runs: Path,
    reports: Path,
    reference: str | None = None,
    primary: str | None = None,
    *,
    archives: Path | None = None,
    keep: bool = False,
    kit: Kit | None = None,
) -> Report:
    """Write the report of `runs`/`study` to `reports`/`study`, using only its records.

    Several studies, separated by commas, get a joint report: a,b in `reports`/a+b. The same records give
    the same bytes. `reference` names the arm to compare the others with, and `primary` the figure to test
    (sliding_8x, loss_8x, ...); both override the study's own choices. `archives` is a folder of reports with
    archives beside them: a study without records in `runs` is read from its archive there. With `keep`, the
    study's records are archived beside its report. Without it, an existing archive is still updated, unless
    it has runs that the folder lacks. `kit` writes more files beside the report, such as the parts of a
    paper. Raises ReportError, one line with the remedy, if there is no such study, finished run, arm or
    figure, if the records cannot be archived, or if their archive is damaged.
    """
    path = reports / study / ARCHIVE
    packed = None
    if (keep or path.is_file()) and study in studies(runs, recorded=True):
        packed = pack(runs / study)
        # Read from the bytes of the archive, so that it and the report agree even if a run is still writing.
        records: tuple[Records, ...] = (unpack(packed, path, study),)
    elif keep:
        raise ReportError(f"keep=true archives one study, and {runs} has no records of {plain(study, 60)!r}")
    else:
        records = load_available(study, runs, archives)
    results = figures(records, subject_of(study), reference, primary)
    if packed is None:
        notices = [
            f"The records of study={record.study} come from the archive {record.archive}."
            for record in records
            if record.archive is not None
        ]
    elif path.is_file() and not keep and (absent := archived_runs(path.read_bytes()) - archived_runs(packed)):
        lacking = f"it has {counted(len(absent), 'run')} that {runs / study} lacks"
        notices = [f"{path} was not updated: {lacking}. keep=true replaces it."]
    else:
        if not is_same(packed, path):
            write_atomic(path, packed)
        notices = [f"records: {path}, {len(packed) / 1000:,.0f} kB, archived beside the report"]
    report = write(results, reports, kit)
    return replace(report, notices=(*notices, *report.notices))


def write_chosen(
    directories: Sequence[Path],
    reports: Path,
    reference: str | None = None,
    primary: str | None = None,
    *,
    kit: Kit | None = None,
) -> Report:
    """Write a report of only these run directories, from one or several studies, and name it after them.

    `reference` defaults to the arm of the first directory, and `primary` to the default tested figure.
    Raises ReportError.
    """
    records = load_chosen(directories)
    names = [f"{directory.parent.name}/{directory.name}" for directory in map(Path.resolve, directories)]
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:6]
    studies = "+".join(record.study for record in records)
    several = f"{studies[:80]}-{len(names)}-runs-{digest}"
    # A report may be published, so its command names the runs by study, not by their local path.
    option = f"checkpoint={','.join(f'runs/{name}' for name in names)}"
    subject = Subject(names[0].partition("/")[2] if len(names) == 1 else several, option)
    return write(figures(records, subject, reference, primary), reports, kit)


def write(results: Results, reports: Path, kit: Kit | None = None) -> Report:
    """Write the report of `results` into a folder of `reports` named after it, with the files of `kit`."""
    # The kit comes first, since it may refuse the request.
    folder = None if kit is None else kit(results, reports / results.study)
    report = write_document(document_of(results), reports)
    kit_place = None if folder is None else f"The paper kit is in {folder}."
    more = filter(None, (results.reference_warning, kit_place))
    return replace(report, notices=(*report.notices, *more))


def write_document(document: Document, reports: Path) -> Report:
    """Write a report in all its forms."""
    # Matplotlib takes a second to load, so it is imported after the request has been checked.
    from poslab.report.render.markdown import markdown
    from poslab.report.render.page import page
    from poslab.report.render.paper import draw_all

    directory = reports / document.name
    for folder in (directory, directory / "figures"):
        remove_unfinished(folder, lambda name: Path(name).suffix in SUFFIXES)
    write_sheets(directory, document.sheets)
    written = [f"{name}.csv" for name in document.sheets]
    for chart, figure in zip(document.charts, draw_all(document.charts), strict=True):
        for kind, content in figure.items():
            written.append(f"figures/{chart.name}.{kind}")
            write_atomic(directory / written[-1], content)
        if chart is document.answer.chart:
            write_atomic(directory / PICTURE, figure["png"])
    if document.answer.chart is None:
        (directory / PICTURE).unlink(missing_ok=True)
    _remove_stale(directory, written)
    write_atomic(directory / "report.md", markdown(document))
    write_atomic(directory / PAGE, page(document))
    write_list(reports)
    scored = tuple(f"{label}: {value}." for label, value in document.answer.belief if label == HELD_OUT)
    return Report(directory, document, scored)


def _remove_stale(directory: Path, written: Sequence[str]) -> None:
    """Remove the tables and figures of an earlier report that are not in `written`, and store that list."""
    earlier = []
    with suppress(OSError, ValueError):  # if the list is missing or damaged, nothing is removed
        earlier = json.loads((directory / WRITTEN).read_text())
    for name in earlier if isinstance(earlier, list) else []:
        if isinstance(name, str) and TABLE_OR_FIGURE.fullmatch(name) and name not in written:
            (directory / name).unlink(missing_ok=True)
    write_atomic(directory / WRITTEN, json.dumps(written))


def live_pages(study: str, runs: Path, status: str, seconds: int) -> tuple[str, str]:
    """Return the page of a study while its runs train, and the same page for when they have ended.

    The first shows `status` at its top and reloads itself every `seconds` seconds. Raises ReportError.
    """
    from poslab.report.render.page import page

    content = document_of(gather(study, runs, None))
    return page(content, status, seconds), page(content)


def write_sheets(directory: Path, sheets: Mapping[str, Sheet]) -> None:
    """Write one CSV file per sheet, in full precision, with booleans spelled as in JSON."""
    for name, (columns, rows) in sheets.items():
        spelled = ({_spelled(key): _spelled(value) for key, value in row.items()} for row in rows)
        write_table(directory / f"{name}.csv", map(_spelled, columns), spelled)


def _spelled(value: Value) -> Any:
    """Return a cell that no spreadsheet reads as a formula, prefixed with an apostrophe if needed."""
    if isinstance(value, bool):
        return str(value).lower()
    is_formula = isinstance(value, str) and FORMULA.match(value) and not NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else value
