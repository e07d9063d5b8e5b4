"""How far a run is, for other processes to show: progress.json in its directory.

It holds no result, so it may be missing, damaged or old, and a run continues where it cannot be written.
"""

import math
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from poslab.record.schema import PROGRESS
from poslab.record.seal import DamagedError, read_sealed, sealed

WRITE_SECONDS = 1.0  # between two writes; readers read no more often
BASIS = 0.02  # the share of a phase to be done before its pace counts: the first steps compile and warm up


@dataclass(frozen=True)
class Progress:
    """How far a run is. Times are seconds since 1970 by the clock of the run's machine."""

    phase: str  # such as training, evaluating
    share: float  # done of the phase, between 0 and 1
    share_before: float  # done of it by an earlier process
    step: int | None  # optimizer steps done, in phases that have steps
    steps: int | None  # in all
    loss: float | None  # nats per token
    tokens_per_second: float | None
    phase_started: float
    updated: float
    process: int  # the id of the run's process

    @property
    def seconds_left(self) -> float | None:
        """Seconds that the phase still takes at its pace so far; None while too little of it is done.

        Counted from `updated`, since the clock of the machine that reads this may differ.
        """
        done = self.share - self.share_before
        if done < BASIS * (1 - self.share_before) or done <= 0:
            return None
        return max(0.0, self.updated - self.phase_started) * (1 - self.share) / done


class ProgressFile:
    """Writes a run's progress. A full disk or a removed folder raises nothing, so that the run continues."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / PROGRESS
        self.written = -math.inf
        self.now: dict[str, Any] = {}

    def begin(self, phase: str) -> None:
        """Begin a phase of the run."""
        self.now = {"phase": phase, "share_before": 0.0, "phase_started": time.time()}
        self.write(0.0)

    def resume(self, share: float) -> None:
        """Leave out `share` of the phase from its pace: an earlier process did it."""
        self.now["share_before"] = share

    def due(self, share: float) -> bool:
        """Return whether to `write` and to read the loss: after a second, or when the phase is done."""
        return time.monotonic() - self.written >= WRITE_SECONDS or share >= 1

    def write(
        self,
        share: float,
        step: int | None = None,
        steps: int | None = None,
        loss: float | None = None,
        tokens_per_second: float | None = None,
    ) -> None:
        """Write at once that `share` of the phase is done; `loss` is in nats per token."""
        self.now |= {"share": min(max(share, 0.0), 1.0), "step": step, "steps": steps}
        # JSON has no NaN: a loss that is not finite is written as null.
        self.now["loss"] = loss if loss is not None and math.isfinite(loss) else None
        self.now["tokens_per_second"] = tokens_per_second
        self._write()

    def end(self) -> None:
        """End the phase."""
        self.now |= {"share": 1.0, "step": self.now["steps"]}
        self._write()

    def _write(self) -> None:
        self.written = time.monotonic()
        progress = Progress(**self.now, updated=time.time(), process=os.getpid())
        # Only one process writes, so the name of the temporary file can be fixed: the next run overwrites
        # what a killed one left.
        temporary = self.path.with_name(f".{PROGRESS}")
        try:
            temporary.write_text(sealed({"run": self.path.parent.name, **asdict(progress)}))
            os.replace(temporary, self.path)
        except OSError:
            pass


def read_progress(directory: Path) -> Progress | None:
    """Return the last progress of the run in `directory`; None if missing, damaged or of another run."""
    try:
        content = read_sealed(directory / PROGRESS)
        run = content.pop("run")
        return Progress(**content) if run == directory.name else None
    except (OSError, DamagedError, TypeError, KeyError):  # TypeError: of another version
        return None
