"""The time until a study ends, estimated from the durations of its runs."""

from collections.abc import Sequence
from statistics import fmean


def rough_duration(seconds: float) -> str:
    """Return a duration such as `45 s`, `3 min` or `2 h 10 min`."""
    if seconds < 99:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def seconds_left(
    finished: Sequence[float], running: Sequence[tuple[float, float | None]], waiting: int
) -> float | None:
    """Return the seconds until the last run of a study ends; None if unknown, or if no run is running.

    `finished` are the durations of whole runs, in seconds. `running` has, for each running one, the seconds
    since its start and those until its phase ends, None if unknown. A run is expected to take as long as the
    finished ones took on average, and the number of runs at a time to stay as it is.
    """
    whole = finished or [elapsed + left for elapsed, left in running if left is not None]
    if not whole or not running:
        return None
    typical = fmean(whole)
    ends = [max(typical - elapsed, left or 0.0) for elapsed, left in running]
    return max(*ends, (sum(ends) + waiting * typical) / len(ends))
