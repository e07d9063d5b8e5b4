"""Remove the runs of a study that failed, were stopped or never began, after showing them."""

import sys
from pathlib import Path

from poslab.commands.verb import verb
from poslab.config.errors import UserError
from poslab.config.text import counted
from poslab.record.study_list import studies
from poslab.study.clean import removable, remove
from poslab.study.status import study_folder

USAGE = """\
Remove the runs of a study that failed, were stopped or never began, after showing them. Finished runs stay
unless they are named. Files that poslab has not written stay, too.

  {command} study=NAME [run=NAME[,NAME...]] [runs=DIR] [yes=true]

  study  the study
  run    only these runs, by the names of their directories, finished ones too
  runs   where the studies are (<runs>/<study>/<run>/); default: runs
  yes    true: remove them without asking
"""


@verb("clean", USAGE, ("study", "run", "runs", "yes"), flags=("yes",))
def main(options: dict[str, str]) -> int:
    """Remove the runs that the options choose; return exit status 2 where nobody agrees."""
    runs = Path(options.get("runs", "runs"))
    if "study" not in options:
        raise UserError(f"give study=NAME; {runs} has {', '.join(studies(runs)) or 'none'}")
    folder = study_folder(options["study"], runs)
    found = removable(folder, list(dict.fromkeys(options["run"].split(","))) if "run" in options else [])
    if not found:
        print(f"{folder.name} has no run that failed, was stopped or never began")
        return 0
    for directory, why in found.items():
        print(f"{directory}  {why}")
    if "yes" not in options and not _agreed(len(found)):
        raise UserError("nothing was removed; yes=true removes them without a question")
    removed, left = remove(folder, found)
    print(f"removed: {counted(len(removed), 'run')}")
    for line in left:
        print(line)
    return 0


def _agreed(runs: int) -> bool:
    """Return whether the user at the terminal agrees; False without a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    print(f"Remove {counted(runs, 'run')}? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
