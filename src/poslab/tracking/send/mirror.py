"""Runs that were made without W&B, or under an id that nobody watches, mirrored to it from their records."""

from pathlib import Path

from poslab.config.request import LoggerOptions
from poslab.record.files import sealed
from poslab.record.locks import holding, run_lock
from poslab.record.manifest import read_manifest
from poslab.record.reader import metrics_rows
from poslab.record.writer import RunRecord
from poslab.tracking import first_place
from poslab.tracking.send.card import Card
from poslab.tracking.send.run import TrackedRun, staged_beside


def mirror(options: LoggerOptions, card: Card, directory: Path) -> None:
    """Show a finished run in W&B as if it had been tracked, and note where in its manifest."""
    with holding(run_lock(directory)):
        manifest = read_manifest(directory)
        assert manifest is not None
        place = first_place(options, directory, manifest.wandb)
        assert place is not None
        number = str(place.id)
        record = RunRecord(directory, manifest)
        record.update(wandb={"id": number})  # before it is opened: a failure must not make a second one
        rows = metrics_rows(directory, manifest)
        with staged_beside(directory):
            opened = TrackedRun(options, card, directory, number, sealed(manifest.as_json()), rows)
            whole = manifest.updated(wandb={**opened.place, "complete": True})
            opened.finish(sealed(whole.as_json()), int(manifest.status != "done"))
        record.replace(whole)
