"""What a run tells of itself while it runs: progress.json in its directory, for whoever watches.

It holds no result: it may be missing, damaged or old, and a run goes on where it cannot be written.
"""

import json
import math
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from poslab.record.schema import PROGRESS

WRITE_SECONDS = 1.0  # at most one write in so many; a observer reads no more often
BASIS = 0.02  # of a phase must be done before its pace says anything: the first steps compile and warm up


@dataclass(frozen=True)
class Progress:
    """How far a run is. Times are seconds since 1970 by the clock of the run's machine."""

    phase: str  # such as training, evaluating
    share: float  # of the phase that is done, between 0 and 1
    share_before: float  # of it that an earlier process had done
    step: int | None  # optimizer steps done, and asked for, in phases that have steps
    steps: int | None
    loss: float | None  # nats a token
    tokens_per_second: float | None
    phase_started: float
    updated: float
    process: int  # its number on the run's machine

    @property
    def seconds_left(self) -> float | None:
        """Seconds the phase still needed when this was written, at its pace so far; None before a basis.

        Only times of the run's own clock are compared: a observer on another machine may have another one.
        """
        done = self.share - self.share_before
        if done < BASIS * (1 - self.share_before) or done <= 0:
            return None
        return max(0.0, self.updated - self.phase_started) * (1 - self.share) / done


class ProgressFile:
    """Writes a run's progress. No call raises for a full disk or a vanished folder: no run ends for it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / PROGRESS
        self.written = -math.inf
        self.now: dict[str, Any] = {}

    def begin(self, phase: str) -> None:
        """A phase of the run begins."""
        self.now = {"phase": phase, "share_before": 0.0, "phase_started": time.time()}
        self.tell(0.0)

    def resume(self, share: float) -> None:
        """An earlier process had done `share` of the phase: the pace of this one is without it."""
        self.now["share_before"] = share

    def due(self, share: float) -> bool:
        """Whether to `tell`, and to read a loss for it: after a second, or when all is done."""
        return time.monotonic() - self.written >= WRITE_SECONDS or share >= 1

    def tell(
        self,
        share: float,
        step: int | None = None,
        steps: int | None = None,
        loss: float | None = None,
        tokens_per_second: float | None = None,
    ) -> None:
        """Write at once that `share` of the phase is done; `loss` is in nats a token."""
        self.now |= {"share": min(max(share, 0.0), 1.0), "step": step, "steps": steps}
        # JSON has no NaN: a loss that is no number is told as none.
        self.now["loss"] = loss if loss is not None and math.isfinite(loss) else None
        self.now["tokens_per_second"] = tokens_per_second
        self._write()

    def end(self) -> None:
        """The phase is done."""
        self.now |= {"share": 1.0, "step": self.now["steps"]}
        self._write()

    def _write(self) -> None:
        self.written = time.monotonic()
        told = Progress(**self.now, updated=time.time(), process=os.getpid())
        # One process writes, so one name will do: what a killed run leaves is written over by the next.
        beside = self.path.with_name(f".{PROGRESS}")
        try:
            beside.write_text(json.dumps(asdict(told)))
            os.replace(beside, self.path)
        except OSError:
            pass


def read_progress(directory: Path) -> Progress | None:
    """What the run in `directory` last told, None where nothing is there or it cannot be understood."""
    try:
        told = json.loads((directory / PROGRESS).read_bytes())
        progress = Progress(
            phase=str(told["phase"]),
            share=_number(told["share"]),
            share_before=_number(told["share_before"]),
            step=_count(told["step"]),
            steps=_count(told["steps"]),
            loss=_optional(told["loss"]),
            tokens_per_second=_optional(told["tokens_per_second"]),
            phase_started=_number(told["phase_started"]),
            updated=_number(told["updated"]),
            process=int(_number(told["process"])),
        )
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return progress if 0 <= progress.share_before <= progress.share <= 1 else None


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return float(value)


def _optional(value: Any) -> float | None:
    return None if value is None else _number(value)


def _count(value: Any) -> int | None:
    return None if value is None else int(_number(value))
