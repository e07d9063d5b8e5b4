"""Runs that were made without W&B, or under an id that nobody watches, mirrored to it from their records."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poslab.lock import alone, run_lock
from poslab.plan import Job
from poslab.record import RunRecord, read_manifest, sealed
from poslab.tracking import first_place
from poslab.tracking.card import of_run
from poslab.tracking.wandb_run import TrackedRun, staged_beside


def mirror(job: Job) -> None:
    """Show a finished run in W&B as if it had been tracked, and note where in its manifest."""
    with alone(run_lock(job.directory)):
        manifest = read_manifest(job.directory) or {}
        place = first_place(job.config.logger, job.directory, manifest.get("wandb"))
        assert place is not None
        number = str(place["id"])
        record = RunRecord(job.directory, manifest)
        record.update(wandb={"id": number})  # before it is opened: a failure must not make a second one
        rows = _rows(job.directory / "metrics.csv")
        with staged_beside(job.directory):
            opened = TrackedRun(job.config.logger, of_run(job), job.directory, number, sealed(manifest), rows)
            whole = {**manifest, "wandb": {**opened.place, "complete": True}}
            opened.finish(sealed(whole), int(manifest["status"] != "done"))
        record.update(**whole)


def _rows(path: Path) -> list[Mapping[str, Any]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
