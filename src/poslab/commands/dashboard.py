"""Create a study's dashboards in W&B, or in files."""

from pathlib import Path
from typing import TYPE_CHECKING

from poslab.commands.verb import verb
from poslab.config.errors import UserError
from poslab.config.text import IN_A_URL, one_line
from poslab.record.study_list import studies

if TYPE_CHECKING:
    from poslab.loggers.dashboard.contents import Contents

USAGE = """\
Create a workspace view and a Report in W&B from the measurements of a study's runs. After more runs, run the
command again: it replaces both, including manual changes.

  {command} study=NAME [project=NAME] [entity=NAME] [runs=DIR] [reports=DIR]

  study      the study, which is also the group of its runs in W&B
  project    the W&B project of its runs (logger.project); default: WANDB_PROJECT, else poslab
  entity     the W&B user or team that owns the project; default: that of your account
  runs       the folder of the records (runs/<study>/<run>/); default: runs
  reports    the folder for files without a login: reports/<study>/wandb/workspace.json and report.json;
             default: reports
"""
KEYS = ("study", "project", "entity", "runs", "reports")


@verb("dashboard", USAGE, KEYS)
def main(options: dict[str, str]) -> int:
    """Save both documents in W&B, or in files without a login. Raise UserError (status 1) if W&B fails."""
    study, runs = options.get("study", ""), Path(options.get("runs", "runs"))
    known = studies(runs, recorded=True)
    if study not in known:
        listed = f"studies with records: {', '.join(known[:8])}" if known else "train one first"
        wrong = f"study={one_line(study, 100)} has no records in {runs}" if study else "give study=NAME"
        raise UserError(f"{wrong}; {listed}")
    for key in ("project", "entity"):
        if key in options and not IN_A_URL.fullmatch(options[key]):
            raise UserError(f"{key}={one_line(options[key])!r} cannot be the name of a W&B {key}")

    # After the arguments, so that a mistake in them is answered at once.
    from poslab.loggers.dashboard.contents import from_records
    from poslab.loggers.dashboard.publish import why_offline

    contents = from_records(study, runs)
    if offline := why_offline():
        _write(contents, offline, options)
    else:
        _publish(contents, options)
    return 0


def _write(contents: "Contents", offline: str, options: dict[str, str]) -> None:
    """Write both documents to files; `offline` is the reason why they are not saved in W&B."""
    from poslab.loggers.dashboard.publish import write_files
    from poslab.loggers.wandb import default_project

    study = options["study"]
    folder = Path(options.get("reports", "reports")) / study / "wandb"
    write_files(study, contents, options.get("project", default_project()), options.get("entity"), folder)
    print(
        f"{offline}: written to {folder}/workspace.json and report.json; to save both in W&B, "
        "log in with `wandb login`, unset WANDB_MODE or set it to online, and run the same command again"
    )


def _publish(contents: "Contents", options: dict[str, str]) -> None:
    """Save both documents in W&B."""
    from poslab.loggers.dashboard.publish import publish
    from poslab.loggers.fetch.account import asking, open_account

    study = options["study"]
    account = open_account(options.get("project"), options.get("entity"))
    with asking(f"the dashboards of {study}"):
        view, report = publish(study, contents, account)
    print(f"workspace: {view}\nreport: {report}")
