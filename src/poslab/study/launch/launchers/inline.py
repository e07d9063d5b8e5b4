"""This process: one run after another, where `print`, `breakpoint()` and tracebacks reach the user."""

import os
import signal
from collections.abc import Sequence
from importlib import import_module
from typing import ClassVar

from poslab.config.schema import ConfigError
from poslab.study.launch.contract import End, Launcher, LauncherOptions, Task

STOPPED = {128 + number: number for number in (signal.SIGINT, signal.SIGTERM)}  # exit statuses


class Inline(Launcher):
    """No run is a process of its own: what kills one ends the command, and the next command resumes it."""

    in_this_process: ClassVar[bool] = True

    def __init__(self, options: LauncherOptions, runs: int) -> None:
        self._ended: list[End] = []

    def check(self, task: Task) -> None:
        if task.devices * task.nodes > 1:
            raise ConfigError(
                f"launcher=inline makes runs in one process, and trainer.devices={task.devices} takes more: "
                "choose launcher=local"
            )

    def start(self, task: Task) -> bool:
        """Make the run and return once it has ended."""
        status = _status(task.command)
        self._ended.append(End(task, status))
        if status in STOPPED:  # the run has handled the signal, which is meant for the whole command
            os.kill(os.getpid(), STOPPED[status])
        return True

    def ended(self) -> list[End]:
        ended, self._ended = self._ended, []
        return ended

    def stop(self) -> None:
        """Do nothing: no run is under way when this is called."""

    def kill(self) -> None:
        """Do nothing, as `stop`."""


def _status(command: Sequence[str]) -> int:
    """The exit status of `python -m MODULE FILE`, here by MODULE's `main`."""
    environment = dict(os.environ)
    _, _, module, file = command
    try:
        return int(import_module(module).main([file]))
    finally:  # what was set for this run is not the next one's
        os.environ.clear()
        os.environ.update(environment)
