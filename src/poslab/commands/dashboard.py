"""Create a study's dashboards in W&B."""

import os
from pathlib import Path

from poslab.commands.verb import verb
from poslab.config.errors import UserError
from poslab.config.text import one_line
from poslab.record.study_list import studies

USAGE = """\
Create a workspace view and a Report in W&B from the measurements of a study's runs. After more runs, run the
command again: it replaces both, including manual changes.

  {command} study=NAME [project=NAME] [entity=NAME] [runs=DIR]

  study      the study, which is also the group of its runs in W&B
  project    the W&B project of its runs (logger.project); default: WANDB_PROJECT, else poslab
  entity     the W&B user or team that owns the project; default: that of your account
  runs       the folder of the records (runs/<study>/<run>/); default: runs
"""
KEYS = ("study", "project", "entity", "runs")
OFFLINE = ("offline", "disabled", "dryrun")  # values of WANDB_MODE


@verb("dashboard", USAGE, KEYS)
def main(options: dict[str, str]) -> int:
    """Save both documents in W&B. Raise UserError (status 1) if W&B fails."""
    study, runs = options.get("study", ""), Path(options.get("runs", "runs"))
    known = studies(runs, recorded=True)
    if study not in known:
        listed = f"studies with records: {', '.join(known[:8])}" if known else "train one first"
        wrong = f"study={one_line(study, 100)} has no records in {runs}" if study else "give study=NAME"
        raise UserError(f"{wrong}; {listed}")
    if (mode := os.environ.get("WANDB_MODE")) in OFFLINE:
        raise UserError(f"nothing is sent to W&B, since WANDB_MODE={mode}: set it to online")

    # After the arguments, so that a mistake in them is answered at once.
    from poslab.loggers.dashboard.contents import from_records
    from poslab.loggers.dashboard.publish import publish
    from poslab.loggers.fetch.account import asking, open_account

    contents = from_records(study, runs)
    account = open_account(options.get("project"), options.get("entity"))
    with asking(f"the dashboards of {study}"):
        view, report = publish(study, contents, account)
    print(f"workspace: {view}\nreport: {report}")
    return 0
