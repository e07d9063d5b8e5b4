"""Create a study's dashboards in W&B, or in files."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from poslab.commands.verb import verb
from poslab.config.errors import UserError
from poslab.config.text import IN_A_URL, NAME, one_line
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
             if the study has no records there, the data of its runs in W&B is used
  reports    the folder for files without a login: reports/<study>/wandb/workspace.json and report.json;
             default: reports
"""
KEYS = ("study", "project", "entity", "runs", "reports")


@verb("dashboard", USAGE, KEYS)
def main(options: dict[str, str]) -> int:
    """Save both documents in W&B, or in files without a login. Raise UserError (status 1) if W&B fails."""
    study, runs = options.get("study", ""), Path(options.get("runs", "runs"))
    known = studies(runs, recorded=True)
    listed = f"studies with records: {', '.join(known[:8])}" if known else f"no study has records in {runs}"
    if not NAME.fullmatch(study):
        wrong = (
            f"study={one_line(study, 100)!r} cannot be the name of a study" if study else "give study=NAME"
        )
        raise UserError(f"{wrong}; {listed}")
    for key in ("project", "entity"):
        if key in options and not IN_A_URL.fullmatch(options[key]):
            raise UserError(f"{key}={one_line(options[key])!r} cannot be the name of a W&B {key}")

    # After the arguments, so that a mistake in them is answered at once.
    from poslab.loggers.dashboard.contents import from_records
    from poslab.loggers.dashboard.publish import why_offline

    recorded = from_records(study, runs) if study in known else None
    offline = why_offline()
    if offline is None:
        _publish(recorded, runs, options)
    elif recorded is None:
        raise UserError(f"study={study} has no records in {runs}, and W&B is not used ({offline}); {listed}")
    else:
        _write(recorded, offline, options)
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


def _publish(recorded: "Contents | None", runs: Path, options: dict[str, str]) -> None:
    """Save both documents in W&B, made from records or else from the data of the study's runs in W&B."""
    from poslab.loggers.dashboard.contents import from_wandb
    from poslab.loggers.dashboard.publish import publish, training_runs
    from poslab.loggers.fetch.account import asking, open_account

    study = options["study"]
    account = open_account(options.get("project"), options.get("entity"))
    with asking(f"the dashboards of {study}"):
        tracked = training_runs(study, account)
        if recorded is None and not tracked:
            raise UserError(f"study={study} has no records in {runs} and no runs in W&B's {account.path}")
        contents = from_wandb(tracked) if recorded is None else recorded
        view, report = publish(study, contents, account)
    print(f"workspace: {view}\nreport: {report}")
    if not tracked:
        print(
            f"no run of the study is in {account.path} yet; to send the runs: "
            f"wandb sync {quote(str(runs / study))}/*/wandb/offline-run-*"
        )
