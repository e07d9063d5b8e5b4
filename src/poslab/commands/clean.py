"""List the runs of a study that failed, were stopped or never began, then remove them."""

import sys
from pathlib import Path

from poslab.commands.verb import verb
from poslab.config.errors import UserError
from poslab.config.text import counted
from poslab.record.study_list import studies
from poslab.study.clean import removable, remove
from poslab.study.status import study_folder

USAGE = """\
List the runs of a study that failed, were stopped or never began, then remove them. Finished runs are
removed only if run= names them. Files that poslab did not write stay, except in checkpoints/ and wandb/.

  {command} study=NAME [run=NAME[,NAME...]] [runs=DIR] [yes=true]

  study  the study
  run    only these runs, by the names of their directories; they may be finished
  runs   the folder of the studies (<runs>/<study>/<run>/); default: runs
  yes    true: remove them without asking
"""


@verb("clean", USAGE, ("study", "run", "runs", "yes"), flags=("yes",))
def main(options: dict[str, str]) -> int:
    """Remove the runs that the options select. Raise UserError if the user does not confirm."""
    runs = Path(options.get("runs", "runs"))
    if "study" not in options:
        raise UserError(f"give study=NAME; the studies in {runs}: {', '.join(studies(runs)) or 'none'}")
    folder = study_folder(options["study"], runs)
    chosen = removable(folder, list(dict.fromkeys(options["run"].split(","))) if "run" in options else [])
    if not chosen:
        print(f"{folder.name} has no run that failed, was stopped or never began")
        return 0
    for directory, why in chosen.items():
        print(f"{directory}  {why}")
    if "yes" not in options and not _confirmed(len(chosen)):
        raise UserError("nothing was removed; yes=true removes them without asking")
    removed, left = remove(folder, chosen)
    print(f"removed: {counted(len(removed), 'run')}")
    for line in left:
        print(line)
    return 0


def _confirmed(runs: int) -> bool:
    """Return whether the user confirms at the terminal; False without a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    print(f"Remove {counted(runs, 'run')}? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
