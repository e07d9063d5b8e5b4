"""The contract of a launcher. Adding one is adding two files, launchers/NAME.py and conf/launcher/NAME.yaml.

The module has one public class, a `Launcher`, found by the module's name: `launcher=NAME` on the command
line. It implements `__init__`, `start`, `ended`, `stop` and `kill`, and overrides of the rest what differs
from a launcher of this machine. Its `options_class`, a `LauncherOptions`, declares the options; the YAML file
has `name: NAME` and a default for every option. A package that it needs becomes an extra in pyproject.toml,
is imported in `__init__`, and where it is missing, ConfigError says how to install it. Helpers lie beside
this module, since every module of launchers/ is a launcher.

A launcher starts processes and reports how they ended. It knows neither what a run is nor whether it
succeeded: that is in the run's record. Read launchers/local.py first; tests/study/test_local_launcher.py
shows how a launcher is tested.
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
# Set to "stdin" for a task with a pipe from its launcher as standard input: when the launcher dies, the pipe
# closes, and the task writes its checkpoint and ends.
LIFELINE = "POSLAB_LIFELINE"


class LauncherOptions(Options):
    """The options that every launcher has."""

    restarts: int = Field(ge=0, description="of a run that loses its process; it resumes from a checkpoint")


@dataclass(frozen=True)
class Task:
    """A run to start, as a process of its own."""

    name: str  # of the run's directory inside the study's
    command: tuple[str, ...]
    working_directory: Path
    log: Path  # the process's output is appended to it; the launcher creates its folder
    study: Path  # the study's directory; a launcher may store files in its folder `.launcher`
    cuda: bool  # whether its devices are GPUs
    devices: int  # per node: GPUs, or processes on CPU
    nodes: int
    # A module that imports what `command`, `python -m MODULE FILE`, needs: a launcher may fork processes from
    # one that has imported it, and call `MODULE.main` there. None: no fork.
    preload: str | None = None
    # Runs it in this process and returns its exit status, for a launcher that is `in_this_process`.
    run_in_process: Callable[[], int] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class End:
    """How a task ended."""

    task: Task
    status: int | None  # its exit status, negative where a signal ended it; None where it is unknown
    reason: str = ""  # further facts of the launcher, such as: Slurm job 17 was cancelled
    restartable: bool = True  # False where a user cancelled it on purpose


@dataclass(frozen=True)
class Places:
    """The devices that the runs of a command share, where the launcher knows them beforehand."""

    names: tuple[str, ...]  # such as GPU 0
    of_a_run: int  # how many of them a run takes
    shared_by: int = 1  # runs on each


class Launcher(ABC):
    """Starts tasks on the available devices."""

    options_class: ClassVar[type[LauncherOptions]] = LauncherOptions
    # Whether tasks continue when the command that started them ends; the same command must find them again.
    detached: ClassVar[bool] = False
    # Whether `start` puts tasks into a queue: a run then waits until its process has taken its lock.
    queues: ClassVar[bool] = False
    # Whether `ended` itself runs the task that was started, by its `run_in_process`, not its command. A
    # signal then raises Stopped there, and `stop` is not called.
    in_this_process: ClassVar[bool] = False
    # Seconds that an optimizer step has to end once a run is asked to stop: fewer than until a SIGKILL.
    step_seconds: ClassVar[float] = 2.5

    @abstractmethod
    def __init__(self, options: Any, runs: int) -> None:
        """`runs` is the number of runs of the study. Raises ConfigError where the launcher cannot work."""

    @classmethod
    def on_this_machine(cls, options: Any) -> bool:
        """Return whether tasks run on this machine, so that `auto` settings mean its devices."""
        return True

    @classmethod
    def ranks(cls, world: int) -> Mapping[str, str] | None:
        """Return LOCAL_RANK, NODE_RANK, MASTER_ADDR and MASTER_PORT of this process, one of a run's `world`.

        Called in the run's process, where the launcher starts all processes of a run. None: the launcher
        starts the first, which starts the others. Raises ConfigError where there are not `world` processes.
        """
        return None

    @classmethod
    def places(cls, options: Any, runs: int, task: Task) -> Places | None:
        """Return where the `runs` of a command like `task` would run; None: a cluster decides.

        Starts nothing. Raises ConfigError where there are no devices for the task.
        """
        return None

    def for_one_run(self, task: Task) -> "Launcher":
        """Return the launcher of a command with the only run `task`: this one, unless overridden."""
        return self

    def check(self, task: Task) -> None:  # noqa: B027 - some know it only when they start the task
        """Raise ConfigError where there will never be devices for the task."""

    @abstractmethod
    def start(self, task: Task) -> bool:
        """Start the task, or put it into a queue; False where its devices are not free now.

        It runs `command` in `working_directory`, with output appended to `log`. Raises ConfigError where
        there will never be devices for it.
        """

    @abstractmethod
    def ended(self) -> list[End]:
        """Return the tasks that have ended since the last call, each reported once. Does not wait."""

    def requeued(self, task: Task) -> bool:
        """Return whether a task that was started waits in a queue again."""
        return False

    @abstractmethod
    def stop(self) -> None:
        """Send SIGTERM to every started task, so that its run writes a checkpoint. Does not wait."""

    @abstractmethod
    def kill(self) -> None:
        """End every started task at once."""

    def why_waiting(self, task: Task) -> str:
        """Return why no device is free for the task, and what helps."""
        return "runs of other commands use all of them"

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release what the launcher holds. No task is running then, unless the launcher is `detached`."""


def launcher_class(section: Mapping[str, Any]) -> tuple[type[Launcher], LauncherOptions]:
    """Return the launcher that the section `launcher` names, and its options. Raises ConfigError."""
    kind = find(section.get("name"), Launcher, LAUNCHERS, "launcher.name")  # type: ignore[type-abstract]
    options = options_of(section, kind, "name", "launcher")
    assert isinstance(options, LauncherOptions)
    return kind, options
