"""Tasks forked by multiprocessing's fork server, which does the imports of all runs of a study once.

Only the local launcher forks. A Slurm job starts by itself on its node, perhaps hours after the one before;
Ray does not count the memory and threads of a process that outlives its tasks.
"""

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any
from unittest.mock import patch

from poslab.study.launch.contract import Task

MOST_DESCRIPTORS = 250  # that one message to the server takes, without its own
LONGEST_FOLDER = 70  # bytes: the path of a socket has 108 at most, on some systems 104
CONTEXT = multiprocessing.get_context("forkserver")


class ForkServer:
    """Imports the module `preload`, then forks tasks."""

    def __init__(self, preload: str, environment: Mapping[str, str]) -> None:
        """Return at once, while the server imports; it gets the variables of `environment`."""
        multiprocessing.set_forkserver_preload([preload])
        too_long = len(os.fsencode(tempfile.gettempdir())) > LONGEST_FOLDER  # for the server's socket in it
        self._folder = tempfile.TemporaryDirectory(prefix="pymp-", dir="/tmp" if too_long else None)
        _of_multiprocessing()["tempdir"] = self._folder.name
        with patch.dict(os.environ, environment):
            forkserver.ensure_running()

    def start(
        self, task: Task, cores: Sequence[str], leases: Sequence[int], environment: Mapping[str, str]
    ) -> ForkServerProcess:
        """Start the task in a process of its own on `cores` only, which has the descriptors `leases`.

        The first call waits for the server's imports. Raises EOFError or ConnectionError where the server was
        killed; the next call starts another.
        """
        # A Connection is sent with its descriptor, and closes its own.
        inherited = [Connection(os.dup(number)) for number in leases]
        sendable = replace(task, run_in_process=None)  # which could not be sent
        arguments = (sendable, [int(core) for core in cores], inherited, dict(environment))
        process = CONTEXT.Process(target=_run, args=arguments)
        # The forked process must not run the command's script again, which may have no guard against that.
        with patch.multiple(sys.modules["__main__"], __file__=None, __spec__=None, create=True):
            process.start()
        return process

    def close(self) -> None:
        """End the server, also while it imports, and remove its socket.

        multiprocessing does so only for its own tests, by names that have not changed since Python 3.8.
        """
        server: Any = forkserver._forkserver
        if server._forkserver_pid is not None:
            with suppress(ProcessLookupError):
                os.kill(server._forkserver_pid, signal.SIGKILL)
            server._stop()
        self._folder.cleanup()
        _of_multiprocessing().pop("tempdir", None)


def _of_multiprocessing() -> dict[str, Any]:
    """Return the settings of multiprocessing in this process, with the folder for sockets."""
    return vars(multiprocessing.current_process())["_config"]


def _run(
    task: Task, cores: Sequence[int], leases: Sequence[Connection], environment: Mapping[str, str]
) -> None:
    """Become, in the forked process, what a fresh one with the task's command would be. Does not return.

    It has the `leases` until it ends.
    """
    os.setsid()
    os.chdir(task.working_directory)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    os.environ.update(environment)
    log = os.open(task.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    parent = multiprocessing.parent_process()
    assert parent is not None
    # Standard input is the lifeline: a pipe from the launcher's process.
    for target, source in enumerate((parent.sentinel, log, log)):
        os.dup2(source, target)
    if (torch := sys.modules.get("torch")) is not None:  # it has the server's number of threads
        torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    module, *arguments = task.command[2:]
    sys.argv = [module, *arguments]
    worker = import_module(module)
    worker.exit_with(worker.main(sys.argv))
