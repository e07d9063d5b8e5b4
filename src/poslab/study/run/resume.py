"""The files that earlier processes of a run have left beside its record: a state, and unfinished files."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from poslab.config.schema import SHARING
from poslab.measures import table_files
from poslab.record.facts import Manifest
from poslab.record.files import remove_unfinished
from poslab.record.manifest import damaged_files
from poslab.record.schema import CHECKPOINTS, FINAL, RUN_FILES
from poslab.record.seal import UnreadableError
from poslab.study.run.job import Job
from poslab.training.checkpoints import is_state, newest_checkpoint, trained_state
from poslab.training.observer import State

Note = Callable[[str], None]  # adds a line to the record's notes


def read_state(job: Job, manifest: Manifest, note: Note) -> tuple[State | None, Mapping[str, Any] | None]:
    """Return the newest undamaged checkpoint of earlier processes, or else their final weights.

    The other item of the pair is None, or both are. Damaged files are skipped, with a note.
    """
    state = newest_checkpoint(job.directory / CHECKPOINTS, job.identity, note)
    if state is not None:
        _note_other_devices(job, manifest, note)
        return state, None
    path, recorded = job.directory / FINAL, (manifest.files or {}).get(FINAL)
    if recorded is None or damaged_files(job.directory, {FINAL: recorded}):
        return None, None
    try:
        return None, {**trained_state(path, job.identity), "sha256": recorded}
    except UnreadableError as error:
        note(f"{path} {error}; it is written again")
        return None, None


def _note_other_devices(job: Job, manifest: Manifest, note: Note) -> None:
    """Add a note if training resumes on other devices, which changes the order of sums."""
    old = {**SHARING, **((manifest.config or {}).get("trainer") or {})}
    now = job.config.trainer.model_dump(include=set(SHARING))
    if changed := [f"{key}={now[key]} instead of {old[key]}" for key in SHARING if now[key] != old[key]]:
        note(f"resumed with {', '.join(changed)}: the last digits may differ")


def remove_leftovers(directory: Path) -> None:
    """Remove the unfinished files that killed processes have left in a run's directory."""
    remove_unfinished(directory, (RUN_FILES | table_files()).__contains__)
    remove_unfinished(directory / CHECKPOINTS, is_state)
