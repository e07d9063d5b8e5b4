"""How far a run is, for other processes to show: progress.json in its directory.

It holds no result, so it may be missing, damaged or old, and a run continues where it cannot be written.
"""

import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from poslab.record.schema import PROGRESS
from poslab.record.seal import DamagedError, read_sealed, sealed


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    phase: str  # such as training, evaluating
    share: float  # done of the phase, between 0 and 1
    updated: float  # seconds since 1970, by the clock of the run's machine
    step: int | None = None  # optimizer steps done, in phases that have steps
    steps: int | None = None  # in all
    loss: float | None = None  # nats per token
    tokens_per_second: float | None = None
    seconds_left: float | None = None  # of the phase; None while too little of it is done


def write_progress(directory: Path, progress: Progress) -> None:
    """Write a run's progress. A full disk or a removed folder raises nothing, so that the run continues."""
    # Only one process writes, so the name of the temporary file can be fixed: the next run overwrites what a
    # killed one left.
    temporary = directory / f".{PROGRESS}"
    with suppress(OSError):
        temporary.write_text(sealed({"run": directory.name, **asdict(progress)}))
        os.replace(temporary, directory / PROGRESS)


def read_progress(directory: Path) -> Progress | None:
    """Return the last progress of the run in `directory`; None if missing, damaged or of another run."""
    try:
        content = read_sealed(directory / PROGRESS)
        run = content.pop("run")
        return Progress(**content) if run == directory.name else None
    except (OSError, DamagedError, TypeError, KeyError):  # TypeError: of another version
        return None
