"""Where and when the runs of a command would run, by the rule that the pool of runs follows.

A run starts, in the order of the command, as soon as its devices and its memory are free.
"""

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from poslab.study.launch.contract import Places


@dataclass(frozen=True)
class Machine:
    """The machine that runs are planned for."""

    name: str  # for the head of the table
    local: bool  # whether it is this one, so that `auto` settings mean its devices
    cuda: bool
    places: Places | None  # None: a cluster decides where a run goes
    memory: tuple[int, ...] = ()  # bytes of each place that runs share


@dataclass
class Placed:
    """What a run takes, and where and when it would run."""

    seconds: float
    memory: int  # bytes
    devices: int = 1  # cores or GPUs
    names: tuple[str, ...] = ()  # of its devices; empty: it takes none, or a cluster decides
    # 1: it starts at once; 2: after one run on its device, or after all runs of an earlier stage.
    wave: int = 0
    end: float = 0.0  # seconds after the first start


def schedule(
    runs: Sequence[Placed], places: Places, memory: Sequence[int] = (), earlier: Sequence[Placed] = ()
) -> None:
    """Place the runs in this order; each takes as many devices as it asks for, of those that there are.

    `memory` holds the bytes of each place that runs share: the machine, or each GPU; empty: enough.
    `earlier` are runs that end before the first of these starts, as trials of a rate do.
    """
    now = max((run.end for run in earlier), default=0.0)
    waves = max((run.wave for run in earlier), default=0)
    before: Counter[str] = Counter()
    used: Counter[str] = Counter()
    running: list[tuple[float, int]] = []  # a heap of ends and numbers
    for number, run in enumerate(runs):
        while True:
            emptiest = sorted(places.names, key=lambda name: used[name])[: run.devices]
            active = [runs[index].memory for _, index in running]
            if used[emptiest[-1]] < places.shared_by and fits([run.memory, *active], memory):
                break
            now, ended = heapq.heappop(running)
            used.subtract(runs[ended].names)
        run.names, run.end = tuple(emptiest), now + run.seconds
        run.wave = 1 + waves + max(before[name] // places.shared_by for name in emptiest)
        heapq.heappush(running, (run.end, number))
        used.update(emptiest)
        before.update(emptiest)


def fits(runs: Sequence[int], memory: Sequence[int]) -> bool:
    """Return whether runs of these bytes fit together into these places; one by itself always does."""
    return len(runs) == 1 or not memory or fullest_place(runs, len(memory)) <= min(memory)


def fullest_place(runs: Sequence[int], places: int) -> int:
    """Return the most bytes that runs of these sizes take of one place, where devices are leased evenly.

    At most so many runs, here the largest, share one of the `places`: the machine, or each of its GPUs.
    """
    return sum(sorted(runs)[-math.ceil(len(runs) / places) :])
