"""The files that earlier processes of a run have left beside its record: a state, and unfinished files."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

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
        return state, None
    path, recorded = job.directory / FINAL, (manifest.files or {}).get(FINAL)
    if recorded is None or damaged_files(job.directory, {FINAL: recorded}):
        return None, None
    try:
        return None, {**trained_state(path, job.identity), "sha256": recorded}
    except UnreadableError as error:
        note(f"{path} {error}; it is written again")
        return None, None


def remove_leftovers(directory: Path) -> None:
    """Remove the unfinished files that killed processes have left in a run's directory."""
    remove_unfinished(directory, (RUN_FILES | table_files()).__contains__)
    remove_unfinished(directory / CHECKPOINTS, is_state)
