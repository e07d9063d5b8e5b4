"""Write the report of a study again, from its records."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from poslab.commands.verb import verb
from poslab.config.errors import UserError
from poslab.config.installation import typed

if TYPE_CHECKING:
    from poslab.report.write import Kit, Report

USAGE = """\
Write the report of a study from the records of its runs, without training anything.

  {command} [study=NAME[,NAME...]] [runs=DIR] [reports=DIR] [reference=LABEL] [primary=FIGURE]
      [keep=true] [paper=true [columns=NAME,...]]
  {command} checkpoint=PATH[,PATH...] [reports=DIR] [reference=LABEL] [primary=FIGURE]
  {command} source=wandb study=NAME[,NAME...] [project=NAME] [entity=NAME]

  study       the study to report, or several to compare: study=a,b goes to reports/a+b/;
              default: the one with the newest record
  runs        the folder of the records (runs/<study>/<run>/, or archived as runs/<study>/records.tar.xz);
              default: runs, and reports/<study>/records.tar.xz if a study has no records there
  keep        true: archive the study's records beside its report, without weights and logs, as
              reports/<study>/records.tar.xz, so that the report can be written without runs/; every later
              report of the study in that folder then updates the archive
  paper       true: also write parts for a paper to reports/<study>/paper/: a figure with panels (PDF, and PGF
              if LaTeX is installed), a narrow table, a methods paragraph, all settings, BibTeX for every
              scheme used, and paper.tex, which contains them all in two columns
  columns     columns of the paper's table, such as columns=rank,sliding_1x,sliding_8x,tokens_to_target; a
              wrong name lists all names; default: the columns on the report's first screen
  checkpoint  chosen runs instead of whole studies, each by its directory, its checkpoint.pt or its artifact
              in W&B (checkpoint-<run>:latest, entity/project/checkpoint-<run>:v3); the report of one run goes
              to reports/<run>/, of several to reports/<study>-<n>-runs-<hash>/
  source      wandb: download the records from W&B, where the runs of a study are a group, and check them
  project     the W&B project; default: WANDB_PROJECT, else poslab
  entity      the W&B user or team that owns the project; default: that of your account
  reports     the folder for the report (reports/<study>/index.html); default: reports
  reference   the arm that the other arms are compared with, such as reference=rope;
              default: the one that the (first) study names, else its first arm
  primary     the loss to test: primary=sliding_8x is the loss in sliding windows of 8 L, primary=loss_8x in
              non-overlapping windows; default: the one that the (first) study names, else sliding windows of
              8 L, or of the longest shorter length at which the reference was evaluated
"""
RECORDS = ("study", "runs", "checkpoint", "source", "project", "entity")  # keys that select the runs
KEYS = (*RECORDS, "reports", "reference", "primary", "keep", "paper", "columns")


@verb("report", USAGE, KEYS, flags=("keep", "paper"))
def main(options: dict[str, str]) -> int:
    """Write the report and show its table."""
    for conflict in _conflicts(options):
        raise UserError(conflict)

    # After the arguments, so that a mistake in them is answered at once.
    from poslab.report.render.terminal import show

    show(_report(options))
    return 0


def _report(options: dict[str, str]) -> "Report":
    from rich.console import Console

    from poslab.config.text import listing
    from poslab.record.archive import archived_studies
    from poslab.record.reader import ReportError
    from poslab.record.study_list import studies
    from poslab.report.write import write_chosen, write_report

    runs, reports = Path(options.get("runs", "runs")), Path(options.get("reports", "reports"))
    reference, primary = options.get("reference", "").strip('"') or None, options.get("primary")
    kit = _paper(options)
    working = Console(stderr=True).status("writing the report")  # in a terminal only
    if "checkpoint" in options:
        directories = _directories(options)
        with working:
            return write_chosen(directories, reports, reference, primary, kit=kit)
    # With runs= only the archives of that folder count.
    archives = None if "source" in options else Path(options.get("runs", reports))
    if "source" in options:
        runs = _download(options)
    if "study" not in options:
        known = studies(runs, recorded=True)
        if not known and archives is not None and (archived := archived_studies(archives)):
            raise ReportError(
                f"no records in {runs}; {archives} has archived studies for study=NAME: {listing(archived)}"
            )
        if not known:
            raise ReportError(
                f"no records in {runs}; train a study first: {typed('train')} -m pos=rope,alibi"
            )
        options["study"] = known[0]
    study, keep = options["study"], "keep" in options
    with working:
        return write_report(study, runs, reports, reference, primary, archives=archives, kit=kit, keep=keep)


def _paper(options: dict[str, str]) -> "Kit | None":
    """Return the function that writes the paper kit beside the report, or None without paper=true."""
    if "paper" not in options:
        return None
    from functools import partial

    from poslab.paper.write import write_paper

    names = options["columns"].split(",") if "columns" in options else None
    return partial(write_paper, columns=names)


def _directories(options: dict[str, str]) -> list[Path]:
    """Return the run directories that checkpoint= names, after downloading runs in W&B into the cache."""
    from poslab.loggers.fetch.model import fetch_run_of, resolve_checkpoint

    checkpoints = [resolve_checkpoint(name) for name in options["checkpoint"].split(",")]
    local = [checkpoint for checkpoint in checkpoints if isinstance(checkpoint, Path)]
    if {"project", "entity"} & options.keys() and len(local) == len(checkpoints):
        raise UserError("project= and entity= are for W&B, but checkpoint= names directories on this machine")
    return [
        place
        if isinstance(place, Path)
        else fetch_run_of(place.account(options.get("project"), options.get("entity")), place.name)
        for place in checkpoints
    ]


def _download(options: dict[str, str]) -> Path:
    """Download the studies' records from W&B, and return the folder of the studies in the cache."""
    from rich.console import Console

    from poslab.loggers.fetch.account import open_account
    from poslab.loggers.fetch.study import fetch_study

    account = open_account(options.get("project"), options.get("entity"))
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    runs = [fetch_study(account, study, console) for study in options["study"].split(",")]
    return runs[0]


def _conflicts(options: dict[str, str]) -> Iterator[str]:
    """Yield a message for each option that excludes or needs another: no option may be without effect."""
    of_wandb = [key for key in ("project", "entity") if key in options]
    if options.get("source", "wandb") != "wandb":
        yield f"source={options['source']} is unknown: write source=wandb, or leave it out for this machine"
    if "columns" in options and "paper" not in options:
        yield "columns= is for the table of a paper: add paper=true"
    if "keep" in options and "," in options.get("study", ""):
        yield "keep=true archives the records of one study beside its report: use it for one study at a time"
    for key in ("study", "runs", "source", "keep"):
        if "checkpoint" in options and key in options:
            yield f"checkpoint= already names the runs: leave {key}= out"
    if "source" in options and "study" not in options:
        yield "source=wandb needs study=NAME, the group of the runs in W&B"
    if "source" in options and "runs" in options:
        yield "runs= is for records on this machine, source=wandb for those in W&B: leave one of them out"
    if of_wandb and not {"source", "checkpoint"} & options.keys():
        yield f"{of_wandb[0]}= is for W&B: add source=wandb"
