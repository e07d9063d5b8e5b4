"""Compute where and when the runs of a command would run, by the rule that the pool of runs follows.

Runs start in the order of the command, each as soon as its devices and its memory are free.
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

    name: str  # for the heading of the table
    local: bool  # whether it is this machine, so that `auto` settings refer to its devices
    cuda: bool
    places: Places | None  # None if a cluster decides where a run goes
    memory: tuple[int, ...] = ()  # bytes of each place that runs share: the machine, or each GPU


@dataclass
class Placed:
    """The resources that a run needs, and where and when it would run."""

    seconds: float
    memory: int  # bytes
    devices: int = 1  # cores or GPUs
    names: tuple[str, ...] = ()  # of its devices; empty if it needs none, or if a cluster decides
    # 1 if it starts at once, 2 if it starts after one run on its device or after an earlier stage, and so on.
    wave: int = 0
    end: float = 0.0  # seconds after the first start


def schedule(
    runs: Sequence[Placed], places: Places, memory: Sequence[int] = (), earlier: Sequence[Placed] = ()
) -> None:
    """Set the devices, the wave and the end of each run, in this order.

    `memory` has the bytes of each place that runs share: the machine, or each GPU. If it is empty, memory is
    no limit. `earlier` are runs that end before the first of these starts, such as trials of a learning rate.
    """
    now = max((run.end for run in earlier), default=0.0)
    waves = max((run.wave for run in earlier), default=0)
    before: Counter[str] = Counter()  # the runs placed on each device so far
    used: Counter[str] = Counter()  # the runs on each device now
    running: list[tuple[float, int]] = []  # a heap of end times and indices
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
    """Return whether runs of these sizes, in bytes, fit into the places together; one run always does."""
    return len(runs) == 1 or not memory or fullest_place(runs, len(memory)) <= min(memory)


def fullest_place(runs: Sequence[int], places: int) -> int:
    """Return the bytes that runs of these sizes take of the fullest place, if devices are leased evenly.

    There are `places` places: one machine, or its GPUs. The largest runs are taken to share the fullest one.
    """
    return sum(sorted(runs)[-math.ceil(len(runs) / places) :])
