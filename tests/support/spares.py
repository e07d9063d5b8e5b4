"""A spare process that waits to become the first process for runs that a command starts.

It is forked with all imports done before the command begins. `subprocess.Popen` gives it the command line
`python -m poslab.study.run.worker ...` with the directory, environment, cores and descriptors that a fresh
process would have; it is a child of the command like any other. What that process starts is fresh.
"""

import ctypes
import fcntl
import inspect
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from typing import Any

MODULE = "poslab.study.run.worker"
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
FRESH = subprocess.Popen
LENGTH = 4  # bytes that say how long a message is


def fork_a_spare() -> None:
    """Fork it, and have this process use it once."""
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    spare = os.fork()
    if not spare:
        ours.close()
        libc = ctypes.CDLL(None)
        libc.prctl(DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() == parent:
            _wait(theirs, libc)
        os._exit(0)
    theirs.close()
    subprocess.Popen = _popen(parent, spare, ours)  # type: ignore[misc]


def _popen(owner: int, spare: int, connection: socket.socket) -> type[subprocess.Popen[Any]]:
    """Popen that uses the process `spare` of the process `owner`, whose other end `connection` is."""
    spares = [spare]

    class Popen(FRESH):
        def _execute_child(self, *positional: Any) -> None:
            given = inspect.signature(super()._execute_child).bind(*positional).arguments
            if os.getpid() != owner or not spares or list(given["args"][1:3]) != ["-m", MODULE]:
                super()._execute_child(*positional)
                return
            standard = [
                number if child == -1 else child
                for number, child in enumerate((given["p2cread"], given["c2pwrite"], given["errwrite"]))
            ]
            passed = list(given["pass_fds"])
            message = {
                "arguments": list(given["args"]),
                "cwd": str(given["cwd"] or os.getcwd()),
                "environment": dict(os.environ if given["env"] is None else given["env"]),
                "session": given["start_new_session"],
                "cores": sorted(os.sched_getaffinity(0)),
                "passed": passed,
            }
            encoded = json.dumps(message).encode()
            socket.send_fds(connection, [len(encoded).to_bytes(LENGTH)], [*standard, *passed])
            connection.sendall(encoded)
            connection.close()
            self.pid = spares.pop()
            self._child_created = True
            ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(given[end] for end in ends))

    return Popen


def _wait(connection: socket.socket, libc: ctypes.CDLL) -> None:
    """Become what the message says; return where none comes."""
    head, descriptors, _, _ = socket.recv_fds(connection, LENGTH, 64)
    if len(head) < LENGTH:
        return
    message = json.loads(connection.recv(int.from_bytes(head), socket.MSG_WAITALL))
    connection.close()
    libc.prctl(DIE_WITH_PARENT, 0)
    if message["session"]:
        os.setsid()
    os.sched_setaffinity(0, message["cores"])
    targets = [0, 1, 2, *message["passed"]]
    # First out of the way of the numbers that are to be, then there.
    above = max([*targets, *descriptors]) + 1
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for source, target in zip(moved, targets, strict=True):
        os.dup2(source, target)  # which is inheritable, as `pass_fds` are
        os.close(source)
    os.chdir(message["cwd"])
    os.environ.clear()
    os.environ.update(message["environment"])
    _set_threads()
    sys.argv = ["", *message["arguments"][3:]]
    sys.path[0] = message["cwd"]

    from support.forks import as_fresh

    as_fresh(lambda: runpy.run_module(MODULE, run_name="__main__", alter_sys=True))


def _set_threads() -> None:
    """PyTorch took them from the environment when it was imported."""
    import torch

    threads = os.environ.get("OMP_NUM_THREADS")
    torch.set_num_threads(int(threads) if threads else len(os.sched_getaffinity(0)))
