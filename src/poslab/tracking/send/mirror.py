"""Runs that were made without W&B, or under an id that nobody watches, mirrored to it from their records."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poslab.config.request import LoggerOptions
from poslab.record.files import sealed
from poslab.record.locks import holding, run_lock
from poslab.record.manifest import read_manifest
from poslab.record.writer import RunRecord
from poslab.tracking import first_place
from poslab.tracking.send.card import Card
from poslab.tracking.send.run import TrackedRun, staged_beside


def mirror(options: LoggerOptions, card: Card, directory: Path) -> None:
    """Show a finished run in W&B as if it had been tracked, and note where in its manifest."""
    with holding(run_lock(directory)):
        manifest = read_manifest(directory) or {}
        place = first_place(options, directory, manifest.get("wandb"))
        assert place is not None
        number = str(place["id"])
        record = RunRecord(directory, manifest)
        record.update(wandb={"id": number})  # before it is opened: a failure must not make a second one
        rows = _rows(directory / "metrics.csv")
        with staged_beside(directory):
            opened = TrackedRun(options, card, directory, number, sealed(manifest), rows)
            whole = {**manifest, "wandb": {**opened.place, "complete": True}}
            opened.finish(sealed(whole), int(manifest["status"] != "done"))
        record.update(**whole)


def _rows(path: Path) -> list[Mapping[str, Any]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
