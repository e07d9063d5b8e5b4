"""The contract of a launcher, and how one is found: launchers/ has one module each.

A launcher starts processes and tells how they ended. It knows neither what a run is nor how it went: that is
in the run's record.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from poslab.config.registry import find, options_of
from poslab.config.schema import Options

LAUNCHERS = "poslab.study.launch.launchers"
LIFELINE = "POSLAB_LIFELINE"  # =stdin: the process ends, gently, when its standard input is closed


class LauncherOptions(Options):
    """What every launcher can be told."""

    restarts: int = Field(ge=0, description="a run, where its process is lost; it goes on from a checkpoint")


@dataclass(frozen=True)
class Task:
    """A run to be made, as a process of its own."""

    name: str  # of the run: its directory inside the study's
    command: tuple[str, ...]
    working_directory: Path
    log: Path  # what the process prints is appended to it
    study: Path  # the study's directory; a launcher may keep files in its folder `.launcher`
    cuda: bool  # whether its devices are GPUs
    devices: int  # a node: GPUs, or processes on CPU
    nodes: int
    # What forks such processes from one that has done their imports, on the socket whose descriptor is put
    # behind it (see forks.py); None where each must be started afresh. A launcher need not use it.
    forks: tuple[str, ...] | None = None


@dataclass(frozen=True)
class End:
    """How a task ended."""

    task: Task
    status: int | None  # its exit status, negative where a signal killed it; None where nobody knows
    reason: str = ""  # what the launcher knows beside it, such as: Slurm job 17 was cancelled
    again: bool = True  # whether a run that did not come to its end may be started again; not if cancelled


class Launcher(ABC):
    """Starts tasks on the devices that there are."""

    options_class: ClassVar[type[LauncherOptions]] = LauncherOptions
    outlives: ClassVar[bool] = False  # whether tasks go on when the command that started them ends

    @abstractmethod
    def __init__(self, options: Any, runs: int) -> None:
        """`runs` is how many the study has in all. Raises ConfigError where the launcher cannot work here."""

    @classmethod
    def here(cls, options: Any) -> bool:
        """Whether tasks run on the machine of whoever starts them."""
        return True

    def check(self, task: Task) -> None:  # noqa: B027 - some know only when they start it
        """Raises ConfigError where there will never be a device for a task."""

    @abstractmethod
    def start(self, task: Task) -> bool:
        """Start a task, or hand it to a queue; False where no device is free for it now.

        Raises ConfigError where there will never be one.
        """

    @abstractmethod
    def ended(self) -> list[End]:
        """The tasks that ended since this was asked last; does not wait."""

    @abstractmethod
    def stop(self) -> None:
        """Ask every started task to end (SIGTERM); does not wait."""

    @abstractmethod
    def kill(self) -> None:
        """End every started task at once."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Give back what the launcher holds; no task is running, or `outlives`."""


def launcher_class(section: Mapping[str, Any]) -> tuple[type[Launcher], LauncherOptions]:
    """The launcher that a configuration's section `launcher` names, and its options. Raises ConfigError."""
    kind = find(section.get("name"), Launcher, LAUNCHERS, "launcher.name")  # type: ignore[type-abstract]
    options = options_of(section, kind, "name", "launcher")
    assert isinstance(options, LauncherOptions)
    return kind, options
