"""Tasks forked by multiprocessing's fork server, which does the imports for all runs of a study once.

Only the local launcher forks. A Slurm job starts on its own node, perhaps hours after the previous one, and
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
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any
from unittest.mock import patch

from poslab.study.launch.contract import Task

LONGEST_FOLDER = 70  # bytes, since the path of a socket has at most 108, on some systems 104
CONTEXT = multiprocessing.get_context("forkserver")


class ForkServer:
    """Imports the module `preload`, then forks tasks."""

    def __init__(self, preload: str, environment: Mapping[str, str]) -> None:
        """Start the server with the variables of `environment`, and return while it still imports."""
        multiprocessing.set_forkserver_preload([preload])
        too_long = len(os.fsencode(tempfile.gettempdir())) > LONGEST_FOLDER  # for the path of the socket
        self._folder = tempfile.TemporaryDirectory(prefix="pymp-", dir="/tmp" if too_long else None)
        _of_multiprocessing()["tempdir"] = self._folder.name
        resource_tracker.ensure_running()  # which unblocks signals; the server would start it otherwise
        # Ctrl-C while the server starts is for this process only; `preload` then keeps signals blocked.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            with patch.dict(os.environ, environment):
                forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def start(
        self, task: Task, cores: Sequence[str], leases: Sequence[int], environment: Mapping[str, str]
    ) -> ForkServerProcess:
        """Start the task in a new process that is bound to `cores` and inherits the descriptors `leases`.

        The first call waits for the server's imports. After the server was killed, start a new one.
        """
        # A Connection is sent together with its descriptor, and closes its own copy.
        inherited = [Connection(os.dup(number)) for number in leases]
        sendable = replace(task, run_in_process=None)  # this field cannot be sent
        arguments = (sendable, [int(core) for core in cores], inherited, dict(environment))
        process = CONTEXT.Process(target=_run, args=arguments)
        # The forked process must not run the command's script again, which may have no __main__ guard.
        with patch.multiple(sys.modules["__main__"], __file__=None, __spec__=None, create=True):
            process.start()
        return process

    def close(self) -> None:
        """End the server, even while it imports, and remove its socket.

        multiprocessing itself does this only in its tests, with names that are unchanged since Python 3.8.
        """
        server: Any = forkserver._forkserver
        if server._forkserver_pid is not None:
            with suppress(ProcessLookupError):
                os.kill(server._forkserver_pid, signal.SIGKILL)
            server._stop()
        self._folder.cleanup()
        _of_multiprocessing().pop("tempdir", None)


def _of_multiprocessing() -> dict[str, Any]:
    """Return the settings of multiprocessing in this process, which include the folder for sockets."""
    return vars(multiprocessing.current_process())["_config"]


def _run(
    task: Task, cores: Sequence[int], leases: Sequence[Connection], environment: Mapping[str, str]
) -> None:
    """Turn the forked process into the equivalent of a new one with the task's command, and run it.

    This does not return. The process has the `leases` until it ends.
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
    if (torch := sys.modules.get("torch")) is not None:  # it still has the server's number of threads
        torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    module, *arguments = task.command[2:]
    sys.argv = [module, *arguments]
    worker = import_module(module)
    worker.exit_with(worker.main(sys.argv))
