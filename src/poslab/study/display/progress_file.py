"""The progress of a run as a file that other processes can read: progress.json in the run's directory.

It contains no result, so it may be missing or old, and a run continues if it cannot be written.
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from poslab.record.schema import PROGRESS


@dataclass(frozen=True)
class Progress:
    """The progress of a run."""

    phase: str  # such as training or evaluating
    share: float  # the fraction of the phase that is done, from 0 to 1
    updated: float  # seconds since 1970, by the clock of the run's machine
    step: int | None = None  # optimizer steps done, in phases that have steps
    steps: int | None = None  # optimizer steps of the whole phase
    loss: float | None = None  # nats per token
    tokens_per_second: float | None = None
    seconds_left: float | None = None  # until the phase ends; None while too little of it is done


def write_progress(directory: Path, progress: Progress) -> None:
    """Write a run's progress. Ignore errors such as a full disk or a removed folder: the run continues."""
    # Only one process writes, so the temporary file can have a fixed name: the next process overwrites a file
    # that a killed one has left.
    temporary = directory / f".{PROGRESS}"
    with suppress(OSError):
        temporary.write_text(json.dumps(asdict(progress)))
        os.replace(temporary, directory / PROGRESS)


def read_progress(directory: Path) -> Progress | None:
    """Return the last progress of the run in `directory`; None if it is missing or of another version."""
    try:
        return Progress(**json.loads((directory / PROGRESS).read_text()))
    except (OSError, ValueError, TypeError):
        return None
