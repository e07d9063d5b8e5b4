"""Remove the runs of a study that failed, were stopped or never began, after showing them."""

import sys
from pathlib import Path

from poslab.config.arguments import FAILED, INTERRUPTED, ArgumentError, help_requested, read_options, refuse
from poslab.config.installation import typed
from poslab.config.schema import ConfigError
from poslab.config.text import counted, error_text
from poslab.record.locks import TakenError
from poslab.record.study_list import studies
from poslab.study.clean import Removable, removable, remove

USAGE = """\
Remove the runs of a study that failed, were stopped or never began, after showing them. Finished runs stay
unless they are named. Files that poslab has not written stay, too.

  {command} study=NAME [run=NAME[,NAME...]] [runs=DIR] [yes=true]

  study  the study
  run    only these runs, by the names of their directories, finished ones too
  runs   where the studies are (<runs>/<study>/<run>/); default: runs
  yes    true: remove them without asking
"""
KEYS = ("study", "run", "runs", "yes")


def main(arguments: list[str]) -> int:
    """Return exit status 0, 1 where something failed, or 2 where the command is wrong or the answer is no."""
    if help_requested(arguments, USAGE.format(command=typed("clean"))):
        return 0
    try:
        options = read_options(arguments, KEYS)
        return _clean(options)
    except (ArgumentError, ConfigError) as error:
        return refuse("poslab", f"clean: {error}")
    except TakenError as error:
        message = f"another command uses the same files: it holds the lock {error}"
        return refuse("poslab", message, FAILED)
    except OSError as error:
        return refuse("poslab", error_text(error), FAILED)
    except KeyboardInterrupt:
        return refuse("poslab", "nothing was removed", INTERRUPTED)


def _clean(options: dict[str, str]) -> int:
    runs = Path(options.get("runs", "runs"))
    study = options.get("study")
    if study is None or study not in studies(runs):
        known = ", ".join(studies(runs)) or "none"
        wanted = "give study=NAME" if study is None else f"no study {study[:100]!r} in {runs}"
        raise ConfigError(f"{wanted}; there are: {known}")
    if options.get("yes", "true") != "true":
        raise ConfigError(f"yes={options['yes']} is unknown; there is yes=true, and a question without it")
    folder = runs / study
    found = removable(folder, list(dict.fromkeys(options["run"].split(","))) if "run" in options else [])
    if not found:
        print(f"{study} has no run that failed, was stopped or never began")
        return 0
    for run in found:
        print(f"{run.directory}  {run.why}")
    if "yes" not in options and not _agreed(found):
        return refuse("poslab", "nothing was removed; yes=true removes them without a question")
    removed, left = remove(folder, found)
    print(f"removed: {counted(len(removed), 'run')}")
    for line in left:
        print(line)
    return 0


def _agreed(found: list[Removable]) -> bool:
    """Return whether the user at the terminal agrees; False without a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    print(f"Remove {counted(len(found), 'run')}? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
