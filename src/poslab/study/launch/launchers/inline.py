"""Runs in this process, one after another, so that `print`, `breakpoint()` and tracebacks reach the user."""

import os
from typing import ClassVar
from unittest.mock import patch

from poslab.config.schema import ConfigError
from poslab.study.launch.contract import End, Places, Task
from poslab.study.launch.devices import torch_threads
from poslab.study.launch.launchers.local import Local, LocalOptions, on_cores
from poslab.study.launch.leases import Lease


class Inline(Local):
    """Runs tasks without separate processes: a kill ends the command, and the next command resumes the run.

    A run gets the cores, or the GPU, that the only run of a `local` study would get.
    """

    in_this_process: ClassVar[bool] = True

    def __init__(self, options: LocalOptions, runs: int) -> None:
        super().__init__(options, runs=1)  # one run at a time
        self._next: tuple[Task, Lease] | None = None  # the started task with its devices, until it runs

    @classmethod
    def places(cls, options: LocalOptions, runs: int, task: Task) -> Places:
        every = super().places(options, runs, task)
        return Places(every.names[: every.of_a_run], every.of_a_run)

    def check(self, task: Task) -> None:
        super().check(task)
        if task.devices * task.nodes > 1:
            raise ConfigError(
                f"launcher=inline runs in one process, and trainer.devices={task.devices} needs more: "
                "choose launcher=local"
            )
        if task.cuda and self.gpus > 1:  # a process that has counted the GPUs can no longer select one
            raise ConfigError(
                f"launcher=inline uses one GPU, and this process may use {self.gpus}: set "
                "CUDA_VISIBLE_DEVICES to one of them, or choose launcher=local"
            )

    def start(self, task: Task) -> bool:
        """Lease the task's devices, so that `ended` runs it; return False if they are not free."""
        self.check(task)
        lease = None if self._next else self.lease(task)
        if lease is not None:
            self._next = task, lease
        return lease is not None

    def ended(self) -> list[End]:
        """Run the task that was started, and return once it has ended."""
        if self._next is None:
            return []
        (task, lease), self._next = self._next, None
        try:
            return [End(task, self._run(task, lease))]
        finally:
            lease.release()

    def _run(self, task: Task, lease: Lease) -> int:
        """Run the task in this process, and return its exit status."""
        assert task.run_in_process is not None
        threads = self.cores_of_a_run(task)
        with on_cores(None if task.cuda else lease), patch.dict(os.environ), torch_threads(threads):
            return task.run_in_process()

    def close(self) -> None:
        if self._next is not None:  # the command was stopped before the task ran
            self._next[1].release()
