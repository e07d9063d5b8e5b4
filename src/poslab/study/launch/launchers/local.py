"""This machine: as many runs at a time as devices are free, each a process of its own.

Only a run that is the only one of its command is made in the command itself (launchers/inline.py).
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Literal, Self

from pydantic import Field, model_validator

from poslab.config.schema import ConfigError
from poslab.config.text import listing
from poslab.study.launch.contract import LIFELINE, End, Launcher, LauncherOptions, Task
from poslab.study.launch.devices import Lease, cores, gpus, holders, lease_cores, lease_gpus
from poslab.study.launch.forks import DESCRIPTORS, ForkedProcess, Forks


class LocalOptions(LauncherOptions):
    runs_per_gpu: int = Field(ge=1, description="runs that share a GPU")
    cores_per_run: Literal["auto"] | int = Field(description="auto: an even share of the machine's cores")

    @model_validator(mode="after")
    def _a_run_has_a_core(self) -> Self:
        if self.cores_per_run != "auto" and self.cores_per_run < 1:
            raise ValueError(f"cores_per_run={self.cores_per_run} must be 1 or more, or auto")
        return self


class _FreshProcess:
    """A run in an interpreter of its own."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        self._process = process
        self.stdin = process.stdin

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wake_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGCONT)

    def kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):  # nobody is left of it
            os.killpg(self._process.pid, signal.SIGKILL)


@dataclass
class _Running:
    task: Task
    lease: Lease
    process: _FreshProcess | ForkedProcess


class Local(Launcher):
    """A run on CPU has cores of its own; a run on GPUs has GPUs, or shares of GPUs, of its own."""

    options_class = LocalOptions

    def __init__(self, options: LocalOptions, runs: int) -> None:
        self.options = options
        self.runs = runs
        self.running: list[_Running] = []
        self.forks: Forks | None = None

    @cached_property
    def gpus(self) -> int:
        return len(gpus())

    def prepare(self, forks: Sequence[str], directory: Path) -> None:
        if self.runs > 1 and not self.gpus:
            self.forks = Forks(forks, directory, self._environment(cuda=False, devices=1))

    def start(self, task: Task) -> bool:
        self.check(task)
        lease = self.lease(task)
        if lease is None:
            return False
        try:
            self.running.append(_Running(task, lease, self._process(task, lease)))
        except BaseException:
            lease.release()
            raise
        return True

    def lease(self, task: Task) -> Lease | None:
        """The devices of a run; None where they are not free now."""
        if task.cuda:
            return lease_gpus(task.devices, self.options.runs_per_gpu)
        return lease_cores(self.cores_of_a_run(task.cuda, task.devices))

    def for_one_run(self, task: Task) -> Launcher:
        """`inline` where one process can make the run: print, breakpoint() and profilers work there."""
        from poslab.study.launch.launchers.inline import Inline  # which builds on this module

        return Inline(self.options, 1) if Inline.can_make(task) else self

    def check(self, task: Task) -> None:
        if task.nodes > 1:
            raise ConfigError(
                f"launcher=local is one machine, not {task.nodes}: choose launcher=slurm for several nodes"
            )
        needed, available = self.cores_of_a_run(task.cuda, task.devices), len(cores())
        if needed > available:
            raise ConfigError(
                f"launcher.cores_per_run={needed}, but this process may use {available} cores: choose fewer"
            )
        shared = self.options.runs_per_gpu
        if not task.cuda and shared > 1:
            raise ConfigError(f"launcher.runs_per_gpu={shared} is for runs on GPUs, and this one is on CPU")
        if task.cuda and task.devices > self.gpus:
            raise ConfigError(
                f"trainer.devices={task.devices}, but this process may use {self.gpus} GPUs: choose fewer"
            )

    def cores_of_a_run(self, cuda: bool, devices: int) -> int:
        """By the study's size, not by what is free: a resumed study must train with as many threads."""
        if self.options.cores_per_run != "auto":
            return self.options.cores_per_run
        at_once = self.runs
        if cuda:
            at_once = min(at_once, self.gpus // devices * self.options.runs_per_gpu)
        return max(1, len(cores()) // max(1, at_once))

    def _process(self, task: Task, lease: Lease) -> _FreshProcess | ForkedProcess:
        task.log.parent.mkdir(parents=True, exist_ok=True)
        with task.log.open("ab") as log:
            if not self._can_fork(task, lease):
                return self._fresh_process(task, lease, log)
            assert task.forks is not None
            if self.forks is None:
                self.forks = Forks(task.forks, task.working_directory, self._environment(task.cuda, 1))
            return self.forks.start(
                task.command, log, [int(core) for core in lease.devices], lease.descriptors
            )

    def _can_fork(self, task: Task, lease: Lease) -> bool:
        """Whether forking saves anything: the imports take as long once as in a fresh process.

        Runs on GPUs are started afresh: that CUDA works in a process forked like this was never seen.
        """
        return (
            task.forks is not None
            and self.runs > 1
            and not task.cuda
            and task.devices == 1
            and len(lease.descriptors) + 2 <= DESCRIPTORS
            and (self.forks is None or self.forks.alive)
        )

    def _fresh_process(self, task: Task, lease: Lease, log: IO[bytes]) -> _FreshProcess:
        environment = self._environment(task.cuda, task.devices)
        if task.cuda:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(lease.devices)
        with on_cores(None if task.cuda else lease):
            return _FreshProcess(
                subprocess.Popen(
                    task.command,
                    stdin=subprocess.PIPE,  # the lifeline: open as long as this process lives
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=task.working_directory,
                    env=environment,
                    start_new_session=True,  # Ctrl-C reaches this process alone, which then stops the runs
                    pass_fds=lease.descriptors,
                )
            )

    def _environment(self, cuda: bool, devices: int) -> dict[str, str]:
        threads = str(max(1, self.cores_of_a_run(cuda, devices) // devices))  # of each of a run's processes
        return {**os.environ, LIFELINE: "stdin", "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}

    def ended(self) -> list[End]:
        ended = [run for run in self.running if run.process.has_ended()]
        for run in ended:
            self.running.remove(run)
            run.process.kill_group()  # a leader that was killed leaves its data loaders or ranks behind
            run.process.stdin.close()
            run.lease.release()
        for run in self.running:
            if isinstance(run.process, ForkedProcess) and run.process.is_lost():
                run.process.stdin.close()
                run.process = self._process(run.task, run.lease)
        return [End(run.task, run.process.returncode) for run in ended]

    def obstacle(self, task: Task) -> str:
        kind = "GPUs" if task.cuda else "cores"
        held = listing(holders(task.cuda), 3)
        shared = (
            "launcher.runs_per_gpu=2 of every command lets two runs share a GPU, and "
            if task.cuda and self.options.runs_per_gpu == 1
            else "launcher.cores_per_run=1 takes one core a run, and "
            if not task.cuda and self.cores_of_a_run(task.cuda, task.devices) > 1
            else ""
        )
        return (
            f"runs of {held or 'other commands'} use the {kind}; {shared}TMPDIR set to a folder of its own "
            "starts a command beside them all the same"
        )

    def stop(self) -> None:
        for run in self.running:
            run.process.send_signal(signal.SIGTERM)  # to the leader: Lightning hangs where all ranks get it
            run.process.wake_group()  # one that is frozen (SIGSTOP) could not write its checkpoint

    def kill(self) -> None:
        for run in self.running:
            run.process.kill_group()

    def close(self) -> None:
        if self.forks is not None:
            self.forks.close()


@contextmanager
def on_cores(lease: Lease | None) -> Iterator[None]:
    """Bind the processes that are started inside to the lease's cores.

    A process inherits the affinity of the thread that starts it. Setting it on a process that has started
    would miss the threads that it has by then.
    """
    if lease is None or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {int(core) for core in lease.devices})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
