"""Make the report of a study again from its records: python report.py study=extrapolation"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poslab.report import Report

USAGE = """\
Make the report of a study from its run records, without training anything.

  python report.py [study=NAME[,NAME...]] [runs=DIR] [reports=DIR] [reference=LABEL]
  python report.py checkpoint=PATH[,PATH...] [reports=DIR] [reference=LABEL]

  study       the study to report, or several to compare: study=a,b goes to reports/a+b/;
              the one with the newest record when not said
  runs        where the records are (runs/<study>/<run>/); default: runs
  checkpoint  chosen runs instead of whole studies, each by its directory or its checkpoint.pt;
              the report of one run goes to reports/<run>/, of several to reports/<study>-<n>-runs-<hash>/
  reports     where the report goes (reports/<study>/index.html); default: reports
  reference   the arm that the others are compared with, such as reference=rope;
              default: the one the (first) study names, else its first arm
"""
KEYS = ("study", "runs", "checkpoint", "reports", "reference")


def main(arguments: list[str]) -> int:
    """Exit code 0, or 2 with one line on stderr."""
    if {"-h", "--help", "help"} & set(arguments):
        print(USAGE, end="")
        return 0
    options: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.lstrip("-").partition("=")
        if key not in KEYS or not equals:
            return _refuse(f"{argument!r} is not understood; say {', '.join(f'{name}=...' for name in KEYS)}")
        if not value:
            return _refuse(f"{key}= has no value")
        if key in options:
            return _refuse(f"{key} is given twice")
        options[key] = value
    if "checkpoint" in options and (others := {"study", "runs"} & options.keys()):
        return _refuse(f"checkpoint= names the runs itself: leave {others.pop()}= out")

    # After the arguments, so that a mistake in them is answered at once.
    from poslab.config import ConfigError
    from poslab.report import ReportError, show

    try:
        report = _report(options)
    except (ConfigError, ReportError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "))
    show(report)
    return 0


def _report(options: dict[str, str]) -> "Report":
    from poslab.located import run_directory
    from poslab.report import ReportError, studies, write_chosen, write_report

    runs, reports = Path(options.get("runs", "runs")), Path(options.get("reports", "reports"))
    reference = options.get("reference")
    if "checkpoint" in options:
        directories = [run_directory(name) for name in options["checkpoint"].split(",")]
        return write_chosen(directories, reports, reference)
    if "study" not in options:
        known = studies(runs)
        if not known:
            raise ReportError(f"no records in {runs}; train a study first: python train.py -m pos=rope,alibi")
        options["study"] = known[0]
    return write_report(options["study"], runs, reports, reference)


def _refuse(message: str) -> int:
    print(f"report.py: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
