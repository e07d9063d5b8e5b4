"""Runs on this machine: as many at a time as devices are free, each in a separate process.

If a command has only one run, it runs in the process of the command (launchers/inline.py).
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.context import ForkServerProcess
from typing import Literal, Self

from pydantic import Field, model_validator

from poslab.config.schema import ConfigError
from poslab.config.text import listing
from poslab.study.launch.contract import LIFELINE, End, Launcher, LauncherOptions, Places, Task
from poslab.study.launch.devices import gpus
from poslab.study.launch.forked import ForkServer
from poslab.study.launch.leases import Lease, holders, lease_cores, lease_gpus
from poslab.study.launch.machine import cores

MOST_FORKED_CORES = 250  # of a run: more descriptors than these do not fit into a message to the fork server


class LocalOptions(LauncherOptions):
    runs_per_gpu: int = Field(ge=1, description="runs that share a GPU")
    cores_per_run: Literal["auto"] | int = Field(description="auto: an even share of the machine's cores")

    @model_validator(mode="after")
    def _a_run_has_a_core(self) -> Self:
        if self.cores_per_run != "auto" and self.cores_per_run < 1:
            raise ValueError(f"cores_per_run={self.cores_per_run} must be 1 or more, or auto")
        return self


@dataclass
class _Running:
    task: Task
    lease: Lease
    process: subprocess.Popen[bytes] | ForkServerProcess

    @property
    def status(self) -> int | None:
        """The exit status, or None while it runs, without waiting."""
        process = self.process
        return process.poll() if isinstance(process, subprocess.Popen) else process.exitcode

    def signal(self, number: int, send: Callable[[int, int], None] = os.kill) -> None:
        """Send a signal to the task's process or, by `os.killpg`, to the process group once it leads one."""
        assert self.process.pid is not None
        with suppress(ProcessLookupError, PermissionError):  # the process has ended
            send(self.process.pid, number)


class Local(Launcher):
    """Runs each task on leased devices: on CPU its own cores, or else its own GPUs or shares of GPUs."""

    options_class = LocalOptions

    def __init__(self, options: LocalOptions, runs: int) -> None:
        self.options = options
        self.runs = runs
        self.running: list[_Running] = []
        self._server: ForkServer | None = None

    @cached_property
    def gpus(self) -> int:
        return len(gpus())

    @classmethod
    def places(cls, options: LocalOptions, runs: int, task: Task) -> Places:
        launcher = cls(options, runs)
        launcher.check(task)
        if task.cuda:
            return Places(tuple(f"GPU {name}" for name in gpus()), task.devices, options.runs_per_gpu)
        cores_per_run = launcher.cores_of_a_run(task)
        return Places(tuple(f"core {number}" for number in cores()), cores_per_run)

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
        """Lease the devices of a run; return None if they are not free."""
        if task.cuda:
            return lease_gpus(task.devices, self.options.runs_per_gpu)
        return lease_cores(self.cores_of_a_run(task))

    def for_one_run(self, task: Task) -> Launcher:
        """Return `inline` if one process suffices, so that print, breakpoint() and profilers work."""
        from poslab.study.launch.launchers.inline import Inline  # that module imports this one

        inline = Inline(self.options, 1)
        try:
            inline.check(task)
        except ConfigError:
            return self
        return inline

    def check(self, task: Task) -> None:
        if task.nodes > 1:
            raise ConfigError(
                f"launcher=local uses one machine, not {task.nodes}: choose launcher=slurm for several nodes"
            )
        needed, available = self.cores_of_a_run(task), len(cores())
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

    def cores_of_a_run(self, task: Task) -> int:
        """Return the cores per run, by the study's size and not by free cores: resumed runs need as many."""
        if self.options.cores_per_run != "auto":
            return self.options.cores_per_run
        at_once = self.runs
        if task.cuda:
            at_once = min(at_once, self.gpus // task.devices * self.options.runs_per_gpu)
        return max(1, len(cores()) // max(1, at_once))

    def _forks(self, task: Task) -> bool:
        """Return whether to fork the task, which saves time unless there is only one run.

        Runs on GPUs are not forked, since it is not known whether CUDA works in a forked process.
        """
        return (
            task.preload is not None
            and self.runs > 1
            and not task.cuda
            and task.devices == 1
            and self.cores_of_a_run(task) <= MOST_FORKED_CORES
        )

    def _process(self, task: Task, lease: Lease) -> subprocess.Popen[bytes] | ForkServerProcess:
        task.log.parent.mkdir(parents=True, exist_ok=True)
        threads = str(max(1, self.cores_of_a_run(task) // task.devices))  # per process of the run
        environment = {LIFELINE: "stdin", "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        if self._forks(task):
            assert task.preload is not None
            self._server = self._server or ForkServer(task.preload, environment)
            return self._server.start(task, lease.devices, lease.descriptors, environment)
        if task.cuda:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(lease.devices)
        with task.log.open("ab") as log, on_cores(None if task.cuda else lease):
            return subprocess.Popen(
                task.command,
                stdin=subprocess.PIPE,  # the lifeline: open as long as this process lives
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=task.working_directory,
                env={**os.environ, **environment},
                start_new_session=True,  # Ctrl-C reaches only this process, which then stops the runs
                pass_fds=lease.descriptors,
            )

    def ended(self) -> list[End]:
        statuses = [(run, status) for run in self.running if (status := run.status) is not None]
        for run, _ in statuses:
            self.running.remove(run)
            run.signal(signal.SIGKILL, os.killpg)  # a killed leader may leave data loaders or ranks behind
            if isinstance(run.process, subprocess.Popen):
                assert run.process.stdin is not None
                run.process.stdin.close()
            run.lease.release()
        return [End(run.task, status) for run, status in statuses]

    def why_waiting(self, task: Task) -> str:
        kind = "GPUs" if task.cuda else "cores"
        held = listing(holders(task.cuda), 3) or "other commands"
        return (
            f"runs of {held} use the {kind}: choose a smaller launcher.cores_per_run or a larger "
            "launcher.runs_per_gpu in all commands, or set TMPDIR to a separate folder to start these runs "
            "beside the others anyway"
        )

    def stop(self) -> None:
        for run in self.running:
            run.signal(signal.SIGTERM)  # only to the leader: Lightning hangs if all ranks get it

    def kill(self) -> None:
        for run in self.running:
            run.signal(signal.SIGKILL)
            run.signal(signal.SIGKILL, os.killpg)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


@contextmanager
def on_cores(lease: Lease | None) -> Iterator[None]:
    """Bind the processes that are started in the block to the lease's cores.

    A process inherits the affinity of the thread that starts it. Setting the affinity after the start would
    miss the threads that the process has created by then.
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
