"""This process: one run after another, where `print`, `breakpoint()` and tracebacks reach the user."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import ClassVar

import poslab.study.launch.devices as machine
from poslab.config.schema import ConfigError
from poslab.study.launch.contract import End, Task
from poslab.study.launch.launchers.local import Local, LocalOptions, on_cores

STOPPED = {128 + number: number for number in (signal.SIGINT, signal.SIGTERM)}  # exit statuses


class Inline(Local):
    """Runs are no processes of their own: a kill ends the command, and the next command resumes the run.

    A run has the cores, or the GPU, that the only run of a `local` study would have.
    """

    in_this_process: ClassVar[bool] = True

    def __init__(self, options: LocalOptions, runs: int) -> None:
        super().__init__(options, runs=1)  # at a time
        self._ended: list[End] = []

    @classmethod
    def can_make(cls, task: Task) -> bool:
        """Return whether one process has the run's devices; on CUDA only where a single GPU is visible.

        A process that has counted its GPUs can no longer choose one of them.
        """
        return task.devices * task.nodes == 1 and not (task.cuda and len(machine.gpus()) > 1)

    def check(self, task: Task) -> None:
        super().check(task)
        if task.devices * task.nodes > 1:
            raise ConfigError(
                f"launcher=inline runs in one process, and trainer.devices={task.devices} takes more: "
                "choose launcher=local"
            )
        if not self.can_make(task):
            raise ConfigError(
                f"launcher=inline takes one GPU, and this process may use {self.gpus}: set "
                "CUDA_VISIBLE_DEVICES to one of them, or choose launcher=local"
            )

    def start(self, task: Task) -> bool:
        """Run the task and return once it has ended; False where its devices are not free now."""
        self.check(task)
        lease = self.lease(task)
        if lease is None:
            return False
        threads = self.cores_of_a_run(task.cuda, task.devices)
        try:
            with on_cores(None if task.cuda else lease), _settings_of_one_run(threads):
                status = _status(task.command)
        finally:
            lease.release()
        self._ended.append(End(task, status))
        if status in STOPPED:  # the run has handled the signal, which is meant for the whole command
            os.kill(os.getpid(), STOPPED[status])
        return True

    def ended(self) -> list[End]:
        ended, self._ended = self._ended, []
        return ended


def _status(command: Sequence[str]) -> int:
    """Return the exit status of `python -m MODULE FILE`, from MODULE's `main` in this process."""
    _, _, module, file = command
    return int(import_module(module).main([file], in_command=True))


@contextmanager
def _settings_of_one_run(threads: int) -> Iterator[None]:
    """Give PyTorch `threads` threads inside; afterwards restore them and the environment."""
    import torch

    environment, before = dict(os.environ), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        os.environ.clear()
        os.environ.update(environment)
