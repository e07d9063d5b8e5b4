"""The contract of a launcher. To add one, add two files, launchers/NAME.py and conf/launcher/NAME.yaml.

The module has one public class, a `Launcher`, found by the module's name: `launcher=NAME` on the command
line. It implements `__init__`, `start`, `ended`, `stop` and `kill`, and overrides whatever else differs from
a launcher on this machine. Its `options_class`, a `LauncherOptions`, declares the options; the YAML file has
`name: NAME` and a default for every option. A package that it needs becomes an extra in pyproject.toml and is
imported in `__init__`; if it is missing, ConfigError names the command that installs it. Helpers belong next
to this module, since every module in launchers/ is a launcher.

A launcher starts processes and reports how they ended. It does not know what a run is or whether it
succeeded: that is in the run's record. Read launchers/local.py first; tests/study/test_local_launcher.py
shows how to test a launcher.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from poslab.config.registry import find, options_of
from poslab.config.schema import Options

LAUNCHERS = "poslab.study.launch.launchers"
# Set to "stdin" for a task that has a pipe from its launcher as standard input. When the launcher dies, the
# pipe closes, and the task writes its checkpoint and ends.
LIFELINE = "POSLAB_LIFELINE"


class LauncherOptions(Options):
    """The options that all launchers have."""

    restarts: int = Field(ge=0, description="of a run that loses its process; it resumes from a checkpoint")


@dataclass(frozen=True)
class Task:
    """A run to start as a separate process."""

    name: str  # the name of the run's directory in the study's directory
    command: tuple[str, ...]
    working_directory: Path
    log: Path  # the output of the process is appended to it; the launcher creates its folder
    study: Path  # the study's directory; a launcher may store files in its folder `.launcher`
    cuda: bool  # whether its devices are GPUs
    devices: int  # per node: GPUs, or processes on CPU
    nodes: int
    # A module that imports everything that `command`, `python -m MODULE FILE`, needs. A launcher may fork
    # processes from one that has imported it, and call `MODULE.main` there. If None, it must not fork.
    preload: str | None = None
    # Runs the task in this process and returns its exit status, for launchers with `in_this_process`.
    run_in_process: Callable[[], int] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class End:
    """How a task ended."""

    task: Task
    status: int | None  # its exit status, negative if a signal ended it; None if it is unknown
    reason: str = ""  # the reason, if the launcher knows it: `Slurm job 17 was cancelled`
    restartable: bool = True  # False if a restart is pointless, as after a user has cancelled the task


@dataclass(frozen=True)
class Places:
    """The devices for the runs of a command, if the launcher knows them beforehand."""

    names: tuple[str, ...]  # such as GPU 0
    of_a_run: int  # the number of devices that a run takes
    shared_by: int = 1  # the number of runs that share a device


class Launcher(ABC):
    """Starts tasks on the available devices."""

    options_class: ClassVar[type[LauncherOptions]] = LauncherOptions
    # Whether tasks continue when the command that started them ends. The same command must find them again.
    detached: ClassVar[bool] = False
    # Whether `start` puts tasks into a queue. A run is then waiting until its process has taken its lock.
    queues: ClassVar[bool] = False
    # Whether `ended` itself runs the started task, by calling its `run_in_process` instead of its command. A
    # signal then raises Stopped there, and `stop` is not called.
    in_this_process: ClassVar[bool] = False
    # The seconds that an optimizer step has to end once its run is stopped: fewer than until a SIGKILL.
    step_seconds: ClassVar[float] = 2.5

    @abstractmethod
    def __init__(self, options: Any, runs: int) -> None:
        """Prepare for a study with `runs` runs. Raise ConfigError if the launcher cannot work."""

    @classmethod
    def on_this_machine(cls, options: Any) -> bool:
        """Return whether tasks run on this machine, so that `auto` settings refer to its devices."""
        return True

    @classmethod
    def ranks(cls, world: int) -> Mapping[str, str] | None:
        """Return LOCAL_RANK, NODE_RANK, MASTER_ADDR and MASTER_PORT of this process, one of a run's `world`.

        This is called in each process of a run with several. Return None if the launcher starts only the
        first one, which starts the others. Raise ConfigError if the number of processes is not `world`.
        """
        return None

    @classmethod
    def places(cls, options: Any, runs: int, task: Task) -> Places | None:
        """Return the devices on which a command's `runs` like `task` would run; None if a cluster decides.

        Start nothing. Raise ConfigError if there are no devices for the task.
        """
        return None

    def for_one_run(self, task: Task) -> "Launcher":
        """Return the launcher for a command with only one run, `task`: this launcher, unless overridden."""
        return self

    def check(self, task: Task) -> None:  # noqa: B027 - some know it only when they start the task
        """Raise ConfigError if there can never be devices for the task."""

    @abstractmethod
    def start(self, task: Task) -> bool:
        """Start the task or put it into a queue, and return True; return False if its devices are not free.

        The task runs `command` in `working_directory`, with its output appended to `log`. Raise ConfigError
        if there can never be devices for it.
        """

    @abstractmethod
    def ended(self) -> list[End]:
        """Return the tasks that have ended since the last call, each exactly once. Do not wait."""

    @abstractmethod
    def stop(self) -> None:
        """Send SIGTERM to every started task, so that its run writes a checkpoint. Do not wait."""

    @abstractmethod
    def kill(self) -> None:
        """End every started task at once."""

    def why_waiting(self, task: Task) -> str:
        """Return why no device is free for the task, and what the user can do."""
        return "runs of other commands use all of them"

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release the launcher's resources. No task is running at this time, unless tasks are `detached`."""


def launcher_class(section: Mapping[str, Any]) -> tuple[type[Launcher], LauncherOptions]:
    """Return the launcher class that the section `launcher` names, and its options. Raise ConfigError."""
    kind = find(section.get("name"), Launcher, LAUNCHERS, "launcher.name")  # type: ignore[type-abstract]
    options = options_of(section, kind, "name", "launcher")
    assert isinstance(options, LauncherOptions)
    return kind, options
