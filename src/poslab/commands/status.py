"""Show the state of a study's runs, from its files only."""

import signal
import sys
from pathlib import Path

from poslab.commands.verb import verb
from poslab.config.errors import UserError
from poslab.config.installation import typed
from poslab.record.study_list import studies
from poslab.study.status import show_status, study_folder

USAGE = """\
Show the state of a study's runs, even while another command runs them. In a terminal, the view is updated
until all runs have ended; Ctrl-C ends only the view.

  {command} [study=NAME] [runs=DIR]

  study  the study; default: that of the last command
  runs   the folder of the studies (<runs>/<study>/<run>/); default: runs

The exit status is 1 if a run has failed.
"""


@verb("status", USAGE, ("study", "runs"))
def main(options: dict[str, str]) -> int:
    """Show a study, and return exit status 1 if a run failed. PyTorch, which takes seconds, is not loaded."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ends the view
    runs = Path(options.get("runs", "runs"))
    known = studies(runs)
    if not known and "study" not in options:
        raise UserError(f"no studies in {runs}; start one: {typed('train')} -m pos=rope,alibi")
    folder = study_folder(options.get("study") or known[0], runs)
    return show_status(folder, sys.stdout.isatty())
