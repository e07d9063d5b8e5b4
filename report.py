"""Make the report of a study again from its records: python report.py study=extrapolation"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from poslab.config.arguments import ArgumentError, read

if TYPE_CHECKING:
    from poslab.report.write import Report

USAGE = """\
Make the report of a study from its run records, without training anything.

  python report.py [study=NAME[,NAME...]] [runs=DIR] [reports=DIR] [reference=LABEL]
  python report.py checkpoint=PATH[,PATH...] [reports=DIR] [reference=LABEL]
  python report.py source=wandb study=NAME[,NAME...] [project=NAME] [entity=NAME]

  study       the study to report, or several to compare: study=a,b goes to reports/a+b/;
              the one with the newest record when not said
  runs        where the records are (runs/<study>/<run>/); default: runs
  checkpoint  chosen runs instead of whole studies, each by its directory, its checkpoint.pt or its artifact
              in W&B (checkpoint-<run>:latest, entity/project/checkpoint-<run>:v3); the report of one run goes
              to reports/<run>/, of several to reports/<study>-<n>-runs-<hash>/
  source      wandb: the records are read from W&B, where the runs of a study are a group, and checked
  project     of W&B; default: poslab
  entity      of W&B; default: the account's own
  reports     where the report goes (reports/<study>/index.html); default: reports
  reference   the arm that the others are compared with, such as reference=rope;
              default: the one the (first) study names, else its first arm
"""
KEYS = ("study", "runs", "checkpoint", "source", "project", "entity", "reports", "reference")


def main(arguments: list[str]) -> int:
    """Exit code 0; 2 with one line on stderr where the command is wrong, 1 where W&B fails."""
    if {"-h", "--help", "help"} & set(arguments):
        print(USAGE, end="")
        return 0
    try:
        options = read(arguments, KEYS)
    except ArgumentError as error:
        return _refuse(str(error))
    if wrong := _contradiction(options):
        return _refuse(wrong)

    # After the arguments, so that a mistake in them is answered at once.
    from poslab.config.schema import ConfigError
    from poslab.record.locks import TakenError
    from poslab.record.losses import ReportError
    from poslab.report.render.terminal import show
    from poslab.tracking.fetch.account import SourceError

    try:
        report = _report(options)
    except SourceError as error:
        return _refuse(str(error), error.status)
    except KeyboardInterrupt:
        return _refuse("stopped", 130)
    except TakenError as error:
        return _refuse(f"another command holds {error}: is it at the same?", 1)
    except (ConfigError, ReportError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "))
    show(report)
    return 0


def _report(options: dict[str, str]) -> "Report":
    from poslab.record.losses import ReportError
    from poslab.record.reader import studies
    from poslab.report.write import write_chosen, write_report

    runs, reports = Path(options.get("runs", "runs")), Path(options.get("reports", "reports"))
    reference = options.get("reference")
    if "checkpoint" in options:
        return write_chosen(_directories(options), reports, reference)
    if "source" in options:
        runs = _from_wandb(options)
    if "study" not in options:
        known = studies(runs)
        if not known:
            raise ReportError(f"no records in {runs}; train a study first: python train.py -m pos=rope,alibi")
        options["study"] = known[0]
    return write_report(options["study"], runs, reports, reference)


def _directories(options: dict[str, str]) -> list[Path]:
    """The run directories that checkpoint= names, those from W&B in the cache."""
    from poslab.config.schema import ConfigError
    from poslab.tracking.fetch.located import resolve_checkpoint

    places = [resolve_checkpoint(name) for name in options["checkpoint"].split(",")]
    if {"project", "entity"} & options.keys() and all(isinstance(place, Path) for place in places):
        raise ConfigError("project= and entity= are of W&B, and checkpoint= names directories here")
    found = []
    for place in places:
        if not isinstance(place, Path):
            from poslab.tracking.fetch.account import opened
            from poslab.tracking.fetch.model import fetch_run_of

            project, entity = place.project or options.get("project"), place.entity or options.get("entity")
            place = fetch_run_of(opened(project, entity), place.name)
        found.append(place)
    return found


def _from_wandb(options: dict[str, str]) -> Path:
    """The folder of the cache with the studies, as W&B has them now."""
    from rich.console import Console

    from poslab.tracking.fetch.account import opened
    from poslab.tracking.fetch.study import fetch_study

    account = opened(options.get("project"), options.get("entity"))
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    runs = [fetch_study(account, study, console) for study in options["study"].split(",")]
    return runs[0]


def _contradiction(options: dict[str, str]) -> str | None:
    """What is wrong with the options together, if anything: none is without an effect."""
    if options.get("source", "wandb") != "wandb":
        return f"source={options['source']} is none; there is wandb, and what is on this machine without it"
    for key in ("study", "runs", "source"):
        if "checkpoint" in options and key in options:
            return f"checkpoint= names the runs itself: leave {key}= out"
    if "source" in options and "study" not in options:
        return "source=wandb needs study=NAME, the group of its runs"
    if "source" in options and "runs" in options:
        return "runs= is where records of this machine are: leave it or source=wandb out"
    for key in ("project", "entity"):
        if key in options and not {"source", "checkpoint"} & options.keys():
            return f"{key}= is of W&B: say source=wandb as well"
    return None


def _refuse(message: str, status: int = 2) -> int:
    print(f"report.py: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
