"""This machine: every run is a process of its own, and as many run at a time as devices are free."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

from pydantic import Field, model_validator

from poslab.config.schema import ConfigError
from poslab.study.launch.contract import LIFELINE, End, Launcher, LauncherOptions, Task
from poslab.study.launch.devices import Lease, cores, gpus, lease_cores, lease_gpus


class LocalOptions(LauncherOptions):
    runs_per_gpu: int = Field(ge=1, description="runs that share a GPU")
    cores_per_run: Literal["auto"] | int = Field(description="auto: an even share of the machine's cores")

    @model_validator(mode="after")
    def _a_run_has_a_core(self) -> Self:
        if self.cores_per_run != "auto" and self.cores_per_run < 1:
            raise ValueError(f"cores_per_run={self.cores_per_run} must be 1 or more, or auto")
        return self


@dataclass(frozen=True)
class _Running:
    task: Task
    lease: Lease
    process: subprocess.Popen[bytes]


class Local(Launcher):
    """A run on CPU has cores of its own; a run on GPUs has GPUs, or shares of GPUs, of its own."""

    options_class = LocalOptions

    def __init__(self, options: LocalOptions, runs: int) -> None:
        self.options = options
        self.runs = runs
        self.running: list[_Running] = []

    @cached_property
    def _gpus(self) -> int:
        return len(gpus())

    def start(self, task: Task) -> bool:
        self.check(task)
        lease = (
            lease_gpus(task.devices, self.options.runs_per_gpu)
            if task.cuda
            else lease_cores(self._cores_of_a_run(task))
        )
        if lease is None:
            return False
        try:
            self.running.append(_Running(task, lease, self._process(task, lease)))
        except BaseException:
            lease.release()
            raise
        return True

    def check(self, task: Task) -> None:
        if task.nodes > 1:
            raise ConfigError(
                f"launcher=local is one machine, not {task.nodes}: choose launcher=slurm for several nodes"
            )
        needed, available = self._cores_of_a_run(task), len(cores())
        if needed > available:
            raise ConfigError(
                f"launcher.cores_per_run={needed}, but this process may use {available} cores: choose fewer"
            )
        shared = self.options.runs_per_gpu
        if not task.cuda and shared > 1:
            raise ConfigError(f"launcher.runs_per_gpu={shared} is for runs on GPUs, and this one is on CPU")
        if task.cuda and task.devices > self._gpus:
            raise ConfigError(
                f"trainer.devices={task.devices}, but this process may use {self._gpus} GPUs: choose fewer"
            )

    def _cores_of_a_run(self, task: Task) -> int:
        """By the study's size, not by what is free: a resumed study must train with as many threads."""
        if self.options.cores_per_run != "auto":
            return self.options.cores_per_run
        at_once = self.runs
        if task.cuda:
            at_once = min(at_once, self._gpus // task.devices * self.options.runs_per_gpu)
        return max(1, len(cores()) // max(1, at_once))

    def _process(self, task: Task, lease: Lease) -> subprocess.Popen[bytes]:
        threads = str(max(1, self._cores_of_a_run(task) // task.devices))  # of each of the run's processes
        environment = {
            **os.environ,
            LIFELINE: "stdin",
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
        }
        if task.cuda:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(lease.devices)
        task.log.parent.mkdir(parents=True, exist_ok=True)
        with task.log.open("ab") as log, _on_cores(None if task.cuda else lease):
            return subprocess.Popen(
                task.command,
                stdin=subprocess.PIPE,  # the lifeline: open as long as this process lives
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=task.working_directory,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches this process alone, which then stops the runs
                pass_fds=lease.descriptors,
            )

    def ended(self) -> list[End]:
        over = [run for run in self.running if run.process.poll() is not None]
        for run in over:
            self.running.remove(run)
            _kill_group(run.process)  # a leader that was killed leaves data loaders or ranks behind
            assert run.process.stdin is not None
            run.process.stdin.close()
            run.lease.release()
        return [End(run.task, run.process.returncode) for run in over]

    def stop(self) -> None:
        for run in self.running:
            run.process.terminate()  # the leader alone: Lightning hangs where all ranks get it at once

    def kill(self) -> None:
        for run in self.running:
            _kill_group(run.process)


@contextmanager
def _on_cores(lease: Lease | None) -> Iterator[None]:
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


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):  # the group has ended
        os.killpg(process.pid, signal.SIGKILL)
