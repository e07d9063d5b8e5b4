"""A study's report in W&B: a run with job type "report", with the page and its files as an artifact."""

import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas
import wandb

from poslab.config.text import visible
from poslab.loggers.send.card import Card, artifact_name
from poslab.loggers.send.offline import offline_folders
from poslab.loggers.send.published import (
    PLACE,
    known_place,
    report_digest,
    report_files,
)
from poslab.loggers.send.run import open_run, own_variables, save_file
from poslab.loggers.wandb import WandbOptions
from poslab.record.files import remove_unfinished, write_sealed
from poslab.record.manifest import read_manifest
from poslab.record.schema import MANIFEST, STUDY_LIST
from poslab.record.seal import UnreadableError
from poslab.record.study_list import StudyList, read_study_list, recorded_runs

NAMES = ("run", "code", "data_fingerprint")  # columns of text: hexadecimal digits may look like a number
TABLES = ("arms", "summary", "pairs", "differences")


def publish(study: str, options: WandbOptions, runs: Path, report: Path) -> Mapping[str, Any]:
    """Send the report to W&B, reusing the run of earlier reports; return its place.

    `runs` is the study's folder with run directories, `report` the folder of its page.
    """
    digest = report_digest(options, runs, report)
    number = str(known_place(runs).get("id") or secrets.token_hex(4))
    remove_unfinished(runs, PLACE.__eq__)
    # This comes first, so that the same W&B run is used again after a failure.
    write_sealed(runs / PLACE, {"study": study, "id": number})
    listed = read_study_list(runs) or StudyList(study)
    card = Card(
        group=study,
        job_type="report",
        name=f"report of {study}",
        tags=("report",),
        notes=listed.question,
        config={
            "study": study,
            "question": listed.question,
            "reference": listed.reference,
            "primary": listed.primary,
            "runs": list(listed.runs),
        },
    )
    earlier = offline_folders(runs)
    with own_variables(runs):
        shutil.rmtree(runs / "wandb" / "artifacts", ignore_errors=True)  # from earlier reports
        run, place = open_run(options, card, runs, number)
        try:
            _show(run, study, runs, report)
            if place["mode"] == "online":
                _link_evaluations(run, listed.runs)
        finally:
            run.finish()
    for replaced in earlier:
        shutil.rmtree(replaced, ignore_errors=True)
    write_sealed(runs / PLACE, {"study": study, **place, "digest": digest})
    return place


def _show(run: Any, study: str, runs: Path, report: Path) -> None:
    for path in (runs / STUDY_LIST, *_unlogged(runs)):
        within = path.relative_to(runs)
        save_file(run, str(within if path.parent == runs else Path("runs") / within), path.read_bytes())
    row: dict[str, Any] = {
        f"figures/{path.stem}": wandb.Image(str(path)) for path in sorted(report.glob("figures/*.png"))
    }
    for name in TABLES:
        path = report / f"{name}.csv"
        if path.exists():
            row[f"tables/{name}"] = _table(path)
    run.log(row)
    page = wandb.Artifact(f"report-{artifact_name(study)}", "report", metadata={"study": study})
    for path in report_files(report):
        page.add_file(str(path), name=str(path.relative_to(report)), skip_cache=True)
    run.log_artifact(page)


def _unlogged(runs: Path) -> Iterator[Path]:
    """Yield the files of runs that are not in W&B, for example of pairs that do not work together."""
    for name in recorded_runs(runs):
        with suppress(UnreadableError):
            manifest = read_manifest(runs / name)
            if manifest is not None and (manifest.wandb is None or manifest.wandb.mode is None):
                yield from (runs / name / file for file in (MANIFEST, *manifest.tables))


def _link_evaluations(run: Any, names: Iterable[str]) -> None:
    """Declare the tables of each run as inputs of the report, for W&B's lineage."""
    for name in names:
        with suppress(wandb.errors.Error, ValueError):  # a failed run has no tables
            run.use_artifact(f"evaluation-{artifact_name(name)}:latest")


def _table(path: Path) -> wandb.Table:
    """Return a table of the report. Columns with only numbers are numeric, except those in NAMES."""
    texts = dict.fromkeys(NAMES, str)
    table = pandas.read_csv(path, dtype=texts, keep_default_na=False, na_values=[""]).astype(object)
    rows = table.where(table.notna(), None).to_numpy().tolist()
    return wandb.Table(columns=visible([*table]), data=visible(rows))
