"""A study's dashboards in W&B, or in files: python dashboard.py study=extrapolation"""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from poslab.config.arguments import ArgumentError, read
from poslab.config.text import NAME, printable

if TYPE_CHECKING:
    from poslab.tracking.dashboard.contents import Contents

USAGE = """\
Make a study's workspace view and Report in W&B, from what its runs have measured. Give the command again
after more runs: it replaces both, and what was changed in them by hand.

  python dashboard.py study=NAME [project=NAME] [entity=NAME] [runs=DIR] [reports=DIR]

  study      the study, which is the group of its runs in W&B
  project    the W&B project of its runs (logger.project); default: poslab
  entity     the W&B user or team that the project belongs to; default: your account's
  runs       where the records are (runs/<study>/<run>/); default: runs
             without records of the study, W&B is asked what its runs have
  reports    where the files go without a login: reports/<study>/wandb/workspace.json and report.json;
             default: reports
"""
KEYS = ("study", "project", "entity", "runs", "reports")
LONGEST_NAME = 100  # letters of a study's
IN_A_URL = re.compile(r"[^\s/\\#?%:]{1,128}")  # as W&B takes it for the name of a project or entity


def main(arguments: list[str]) -> int:
    """Exit code 0; 1 where W&B failed, and 2 where the request is wrong, each with one line on stderr."""
    if {"-h", "--help", "help"} & set(arguments):
        print(USAGE, end="")
        return 0
    try:
        options = read(arguments, KEYS)
    except ArgumentError as error:
        return _refuse(str(error))
    runs = Path(options.get("runs", "runs"))
    if "study" not in options:
        return _refuse(f"say study=NAME; {_known(runs)}")
    for key in ("project", "entity"):
        if key in options and not IN_A_URL.fullmatch(options[key]):
            return _refuse(f"{key}={printable(options[key])!r} cannot be the name of one in W&B")
    study, project = options["study"], options.get("project", "poslab")
    if not NAME.fullmatch(study) or len(study) > LONGEST_NAME:
        return _refuse(f"study={printable(study)[:100]!r} cannot be the name of a study; {_known(runs)}")

    # After the arguments, so that a mistake in them is answered at once.
    from poslab.record.reader import ReportError
    from poslab.record.study_list import studies
    from poslab.tracking.dashboard.contents import from_records
    from poslab.tracking.dashboard.publish import why_offline, write_files

    recorded = None
    if study in studies(runs, recorded=True):
        try:
            recorded = from_records(study, runs)
        except (ReportError, OSError) as error:
            return _refuse(str(error))
    offline = why_offline()
    if offline is None:
        return _publish(study, recorded, project, options.get("entity"), runs)
    if recorded is None:
        return _refuse(
            f"study={study} has no records in {runs}, W&B is not asked ({offline}); {_known(runs)}"
        )
    folder = Path(options.get("reports", "reports")) / study / "wandb"
    try:
        write_files(study, recorded, project, options.get("entity"), folder)
    except OSError as error:
        return _refuse(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "))
    print(
        f"{offline}: written to {folder}/workspace.json and report.json; "
        "to publish both: wandb login, WANDB_MODE unset or online, and the same command again"
    )
    return 0


def _publish(study: str, recorded: "Contents | None", project: str, entity: str | None, runs: Path) -> int:
    from poslab.tracking.dashboard.contents import from_wandb
    from poslab.tracking.dashboard.publish import open_project, publish

    try:
        opened = open_project(entity, project)
        there = opened.runs(study)
        if recorded is None and not there:
            return _refuse(f"study={study} has no records in {runs} and no runs in W&B's {opened.path}")
        contents = from_wandb(there) if recorded is None else recorded
        view, report = publish(study, contents, opened)
    except Exception as error:  # whatever the client raises: no network, a wrong key, no such entity
        print(f"dashboard.py: W&B failed: {_one_line(error)}", file=sys.stderr)
        return 1
    print(f"workspace: {view}\nreport: {report}")
    if not there:
        print(f"no run of the study is in {opened.path} yet: wandb sync {runs / study}/*/wandb/offline-run-*")
    return 0


def _one_line(error: Exception) -> str:
    return printable(f"{type(error).__name__}: {error}")[:300]


def _known(runs: Path) -> str:
    from poslab.record.study_list import studies

    known = studies(runs, recorded=True)[:8]
    return f"studies with records: {', '.join(known)}" if known else f"no study has records in {runs}"


def _refuse(message: str) -> int:
    print(f"dashboard.py: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
