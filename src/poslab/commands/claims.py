"""Judge what is said of positional encodings."""

from pathlib import Path
from typing import TYPE_CHECKING

from poslab.config.arguments import INTERRUPTED, ArgumentError, help_requested, read_options, refuse
from poslab.config.installation import title, typed

if TYPE_CHECKING:
    from poslab.claims.page import Entry
    from poslab.claims.studies import Studies

USAGE = """\
Judge what notes, blogs and papers say of positional encodings, without training anything.

  {command} [runs=DIR] [reports=DIR]

  runs        where the records of studies are (runs/<study>/<run>/); default: runs
  reports     where the page goes (reports/claims/index.html, claims.md, claims.csv), and where studies are
              read from that are not in runs (reports/<study>/records.tar.xz); default: reports

Claims about formulas are computed with the code that trains; claims about training are read from the studies
that were made, and the command of each that is missing is listed.
"""
KEYS = ("runs", "reports")


def main(arguments: list[str]) -> int:
    """Exit status 0; 2 with one line on stderr where the command is wrong or the page cannot be written."""
    if help_requested(arguments, USAGE.format(command=typed("claims"))):
        return 0
    try:
        options = read_options(arguments, KEYS)
    except ArgumentError as error:
        return refuse(title("claims"), str(error))

    # After the arguments, so that a mistake in them is answered at once.
    from poslab.claims.write import write
    from poslab.config.text import error_text

    runs, reports = Path(options.get("runs", "runs")), Path(options.get("reports", "reports"))
    for key, folder in (("runs", runs), ("reports", reports)):
        if key in options and not folder.is_dir():
            return refuse(title("claims"), f"{key}={folder} is no directory")
    try:
        page, entries, studies = write(runs, reports)
    except KeyboardInterrupt:
        return refuse(title("claims"), "stopped", INTERRUPTED)
    except OSError as error:
        return refuse(title("claims"), error_text(error))
    _show(page, entries, studies)
    return 0


def _show(page: Path, entries: "tuple[Entry, ...]", studies: "Studies") -> None:
    """The questions asked first with their answers, the counts, and what is missing."""
    from poslab.claims.page import believed, counts, missing_studies

    for entry in believed(entries):
        print(f"{entry.asked.answer:16} {entry.claim.question}")
    found = counts(entries)
    findings = sum(found.values())
    print(f"\n{findings} claims: {', '.join(f'{n} {verdict}' for verdict, n in found.items())}")
    print(f"and {len(entries) - findings} checks of arithmetic, printed digits and an index")
    for study, numbers in missing_studies(entries):
        waiting = ", ".join(map(str, numbers))
        print(f"missing for {waiting}: {study.command}  ({study.duration})")
    for name, reason in studies.unreadable.items():
        print(f"study={name} could not be read: {reason}")
    print(f"page: {page}")
