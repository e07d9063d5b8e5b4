"""Show the state of a study's runs, from its files only."""

import signal
import sys
from pathlib import Path

from rich.console import Console

from poslab.config.arguments import ArgumentError, help_requested, read_options, refuse
from poslab.config.installation import typed
from poslab.record.study_list import studies
from poslab.study.status import show_status

USAGE = """\
Show the state of a study's runs, also while another command runs them. In a terminal the view follows the
study until its runs have ended; Ctrl-C ends only the view.

  {command} [study=NAME] [runs=DIR]

  study  default: that of the last command
  runs   where the studies are (<runs>/<study>/<run>/); default: runs

The exit status is 1 where a run has failed.
"""
KEYS = ("study", "runs")
OTHERS = 5  # other studies that are named


def main(arguments: list[str]) -> int:
    """Show a study and return the exit status; without PyTorch, which takes seconds to import."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ends the view
    if help_requested(arguments, USAGE.format(command=typed("status"))):
        return 0
    try:
        options = read_options(arguments, KEYS)
    except ArgumentError as error:
        return refuse("poslab", f"status: {error}")
    runs = Path(options.get("runs", "runs"))
    known = studies(runs)
    if not known:
        return refuse("poslab", f"no studies in {runs}; begin one: {typed('train')} -m pos=rope,alibi")
    study = options.get("study", known[0])
    follow = sys.stdout.isatty()
    if study in known:
        hints = [f"study={name}" for name in known if name != study][:OTHERS]
        hint = f"; there are also {', '.join(hints)}" if hints and "study" not in options else ""
        ending = "; Ctrl-C ends this view, not the study" if follow else ""
        Console(highlight=False).print(f"{study}{hint}{ending}", markup=False, soft_wrap=True)
    try:
        return show_status(study, runs, follow)
    except KeyboardInterrupt:  # before anything was shown
        return 130
