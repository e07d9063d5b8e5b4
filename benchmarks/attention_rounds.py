"""Measure pairs in turns, each in a separate process at each length.

The speed of a shared machine drifts. With turns, slow minutes affect all pairs equally, and the shortest
round of each pair is compared.
"""

import multiprocessing
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from attention_growth import COMPARED, Pair, Row
from attention_trial import Failure, Peak, Task, serve

TOGETHER = 24  # the most pairs at once; fewer if memory is short, since a waiting process keeps its memory
IDLE = 0.15  # GB of a process in addition to what it measures
SLOW = 8.0  # seconds; a slower pair is not repeated, since warm-up and profiling then matter little
ROUNDS_SECONDS = 6.0  # for all rounds of one pair at one length, after the first
USABLE = 0.8  # share of the free memory that may be used
PRELOAD = [
    "torch._dynamo",
    "torch.profiler",
    "torch.utils.checkpoint",
    "poslab.model.attention",
    "poslab.model.positions",
]

Section = Mapping[str, Any]
# A rough time in units of one token of linear attention, used only to estimate the remaining time.
COST: dict[str, Callable[[int], float]] = {
    "O(L)": lambda length: length,
    "fused": lambda length: length**2 / 800,
    "exact": lambda length: length**2 / 150,
}


@dataclass(frozen=True)
class Job:
    """A pair, the sections that build it, and the longest length at which it is measured."""

    pair: Pair
    pos: Section
    attention: Section
    longest: int


@dataclass(frozen=True)
class Omission:
    pair: Pair
    length: int
    reason: str


class Runner:
    """The measurements of all pairs, length by length."""

    def __init__(self, jobs: Sequence[Job], rounds: int, threads: int, device: str, memory: float) -> None:
        # Pairs that a bound compares are measured in the same group.
        self.jobs = sorted(jobs, key=lambda job: job.pair.label not in COMPARED)
        self.rounds, self.threads, self.device, self.memory = rounds, threads, device, memory
        self.rows: list[Row] = []
        self.omissions: list[Omission] = []
        # Processes are forked from one that has imported the libraries, so a new one imports nothing.
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(PRELOAD)

    def run(self, lengths: Sequence[int], progress: Callable[[str, float], None]) -> Iterator[int]:
        """Measure length by length; yield each finished length."""
        plan = [(job, length) for length in lengths for job in self.jobs if length <= job.longest]
        total = sum(_cost(job, length) for job, length in plan)
        done = 0.0
        for length in lengths:
            waiting = [job for job, at in plan if at == length]
            while waiting:
                number = self._fitting(waiting, length)
                group, waiting = waiting[:number], waiting[number:]
                for job, share in self._together(group, length):
                    done += share * _cost(job, length)
                    progress(f"{job.pair.label} at {length:,}", done / total)
            yield length

    def _together(self, jobs: Sequence[Job], length: int) -> Iterator[tuple[Job, float]]:
        """Measure these pairs in turns; yield a job with the share of its work that was done."""
        running: list[_Process] = []
        try:
            for job in jobs:
                reason = self._too_large(job.pair, length)
                if reason is None:
                    task = Task(job.pos, job.attention, length, self.threads, self.device)
                    process = _Process(self.context, job, task, self.rounds)
                    running.append(process)
                    reason = process.watch()
                if reason is not None:
                    self.omissions.append(Omission(job.pair, length, reason))
                elif not process.wants_more:
                    process.close()
                yield job, 0.3 if reason is None else 1.0
            for number in range(self.rounds):
                # Each round has another order, so that no pair always follows the same one.
                for process in random.Random(number).sample(running, len(running)):
                    if process.wants_more:
                        reason = process.time()
                        if reason is not None:
                            self.omissions.append(Omission(process.job.pair, length, reason))
                        if not process.wants_more:
                            process.close()
                    if process.peak is not None:
                        yield process.job, 0.7 / self.rounds
        finally:
            for process in running:
                process.close()
        for process in running:
            if process.peak is not None and process.seconds:
                self.rows.append(
                    Row(
                        process.job.pair,
                        process.peak.kernel,
                        length,
                        len(process.seconds),
                        min(process.seconds),
                        process.peak.bytes,
                        self.threads,
                        self.device,
                    )
                )

    def _fitting(self, jobs: Sequence[Job], length: int) -> int:
        """Return how many of the next jobs fit into memory, at least 1 (`_too_large` may still refuse it)."""
        room, number = self._room(), 0
        while number < min(len(jobs), TOGETHER):
            room -= IDLE + (self._need(jobs[number].pair, length) or 0.0)
            if room < 0:
                break
            number += 1
        return max(1, number)

    def _too_large(self, pair: Pair, length: int) -> str | None:
        """Return why the pair is not measured at a length, or None."""
        if any(omission.pair == pair for omission in self.omissions):
            return "a shorter length was left out"
        need, room = self._need(pair, length), self._room()
        if need is None or need <= room:
            return None
        return f"could use {need:.1f} GB, and only {room:.1f} GB may be used"

    def _need(self, pair: Pair, length: int) -> float | None:
        """Return the GB that the pair may use, estimated from its last length; None at its first length.

        None on CUDA too: a pair that does not fit there fails by itself.
        """
        last = next((row for row in reversed(self.rows) if row.pair == pair), None)
        if last is None or self.device != "cpu":
            return None
        power = 2.0 if pair.form == "exact" else 1.3
        growth: float = (length / last.length) ** power
        return last.peak_bytes * growth / 1e9

    def _room(self) -> float:
        return min(self.memory, USABLE * free_memory())


class _Process:
    """The process of one pair at one length."""

    def __init__(self, context: Any, job: Job, task: Task, rounds: int) -> None:
        self.job, self.rounds = job, rounds
        self.peak: Peak | None = None  # None also if it failed
        self.seconds: list[float] = []
        self.connection, remote = context.Pipe()
        self.process: ForkServerProcess = context.Process(target=serve, args=(remote, task), daemon=True)
        self.process.start()
        remote.close()

    @property
    def wants_more(self) -> bool:
        if self.peak is None or not self.seconds:
            return self.peak is not None
        return len(self.seconds) < min(self.rounds, ROUNDS_SECONDS / min(self.seconds))

    def watch(self) -> str | None:
        """Measure the peak, which also warms up. Return the reason if that failed, otherwise None."""
        answer = self._ask("memory")
        if isinstance(answer, Failure):
            return answer.reason
        self.peak = answer
        if answer.seconds >= SLOW:
            self.seconds.append(answer.seconds)
        return None

    def time(self) -> str | None:
        """Measure the time once. Return the reason if that failed, otherwise None."""
        answer = self._ask("time")
        if isinstance(answer, Failure):
            self.peak = None
            return answer.reason
        self.seconds.append(answer)
        return None

    def close(self) -> None:
        if self.connection.closed:
            return
        with suppress(OSError):  # the process has already ended
            self.connection.send(None)
        self.process.join(10)
        if self.process.is_alive():  # it is still in a repetition
            self.process.kill()
        self.connection.close()

    def _ask(self, request: str) -> Any:
        try:
            self.connection.send(request)
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join(10)
            return Failure(f"its process ended with {self.process.exitcode} (-9: killed for memory)")


def free_memory() -> float:
    """Return the GB free without swapping; half of the machine's memory if the system does not report it."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024 / 1e9
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2e9


def _cost(job: Job, length: int) -> float:
    slow = COST[job.pair.form](length) > 1e6  # measured once or twice only
    return 20_000 + COST[job.pair.form](length) * (1.5 if slow else 6)
