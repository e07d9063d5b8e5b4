"""How long a study still takes, estimated from how long its runs took."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from poslab.study.display.progress_file import Progress


@dataclass(frozen=True)
class Course:
    """An active run, in seconds: since its start, and until its end, None where that is not known yet."""

    elapsed: float
    left: float | None


def rough_duration(seconds: float) -> str:
    """Return a duration such as 45 s, 3 min, 2 h 10 min."""
    if seconds < 99:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def seconds_left(finished: Sequence[float], running: Sequence[Course], waiting: int) -> float | None:
    """Return seconds until the last run of a study ends; None where that is unknown, or no run is running.

    `finished` are the durations of whole runs, in seconds. A run is expected to take their mean; before one
    has finished, the mean of what the running ones have taken and still need. As many runs as now run at
    the same time until the end: each of the `waiting` ones starts when another one ends.
    """
    whole = finished or [course.elapsed + course.left for course in running if course.left is not None]
    if not whole or not running:
        return None
    typical = fmean(whole)
    places = [
        max(0.0, typical - course.elapsed) if course.left is None else course.left for course in running
    ]
    heapq.heapify(places)
    for _ in range(waiting):
        heapq.heapreplace(places, places[0] + typical)
    return max(places)


@dataclass
class Pace:
    """How long the runs of a study have taken so far."""

    finished: list[float] = field(default_factory=list)  # seconds that a whole run took
    after: dict[str, list[float]] = field(default_factory=dict)  # seconds from a phase's end to the run's

    def course(self, elapsed: float, progress: Progress | None) -> Course:
        """Return the course of a run; its later phases take as long as they did in finished runs."""
        left = progress.seconds_left if progress is not None else None
        if progress is not None and left is not None:
            left += fmean(self.after.get(progress.phase) or [0.0])
        return Course(elapsed, left)

    def finish(self, elapsed: float, ends: Mapping[str, float], updated: float | None) -> None:
        """Add a run that took `elapsed` seconds; its phases ended at `ends`, and it last wrote at `updated`.

        These two are seconds since 1970 by the clock of the run's machine.
        """
        self.finished.append(elapsed)
        for phase, end in ends.items():
            if updated is not None:
                self.after.setdefault(phase, []).append(max(0.0, updated - end))
