"""What earlier processes of a run have left in its directory: its record, a state, unfinished files."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from poslab.config.schema import SHARING
from poslab.measures import table_files
from poslab.record.facts import Manifest
from poslab.record.files import remove_unfinished
from poslab.record.manifest import damaged_files, read_manifest
from poslab.record.schema import CHECKPOINTS, FINAL, RUN_FILES
from poslab.record.seal import UnreadableError
from poslab.study.run.job import Job
from poslab.training.checkpoints import is_state, newest_checkpoint, trained_state
from poslab.training.observer import State

Note = Callable[[str], None]  # takes a line for the record's notes


def read_earlier(job: Job, note: Note) -> tuple[Manifest, State | None, Mapping[str, Any] | None]:
    """Return the record of earlier processes, and the newest undamaged state: a checkpoint or final weights.

    Damaged files are skipped, with a note.
    """
    try:
        manifest = read_manifest(job.directory) or Manifest()
    except UnreadableError as error:
        note(str(error))
        manifest = Manifest()
    state = newest_checkpoint(job.directory / CHECKPOINTS, job.identity, note)
    if state is None:
        return manifest, None, _final_weights(job, manifest, note)
    _note_other_devices(job, manifest, note)
    return manifest, state, None


def _final_weights(job: Job, manifest: Manifest, note: Note) -> dict[str, Any] | None:
    path, files = job.directory / FINAL, manifest.files or {}
    damaged = damaged_files(job.directory, files)
    for name in damaged:
        note(f"{job.directory / name} is damaged, and is written again")
    if FINAL not in files or FINAL in damaged:
        return None
    try:
        return {**trained_state(path, job.identity), "sha256": files[FINAL]}
    except UnreadableError as error:
        note(f"{path} {error}, and is written again")
        return None


def _note_other_devices(job: Job, manifest: Manifest, note: Note) -> None:
    """Note that training resumes on other devices, if it does: sums are then in another order."""
    before = {**SHARING, **((manifest.config or {}).get("trainer") or {})}
    now = job.config.trainer.model_dump(include=set(SHARING))
    if changed := [f"{key}={now[key]} after {before[key]}" for key in SHARING if now[key] != before[key]]:
        note(f"resumed with {', '.join(changed)}: the last digits may differ")


def remove_leftovers(directory: Path) -> None:
    """Remove the files of a run that killed processes have left unfinished."""
    remove_unfinished(directory, (RUN_FILES | table_files()).__contains__)
    remove_unfinished(directory / CHECKPOINTS, is_state)
