"""Runs forked from one process that has imported PyTorch and Lightning, so that a study imports them once.

The importing process (`serve`) is started by the launcher and does nothing else: it holds no model, no data
and no device, and it starts no thread, so a forked run begins in the same state as a fresh interpreter that
has done its imports. What a run inherits on purpose comes with its request: the core that it runs on, its
log, the pipe whose end tells it that its starter is gone, and the leases on its devices.

Only the local launcher forks. A Slurm job starts alone on its node, perhaps hours after the one before. Under
Ray a process that outlived its tasks would hold memory and threads that Ray's books do not count, and a task
that is cancelled or whose worker dies must end its run by the lifeline of its own process.

If the importing process dies, nothing is lost but the time that it saves: runs that it had not begun are
started as fresh processes, and those that it had begun go on, though nobody learns their exit status.
"""

import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any

import numpy as np

LENGTH = 8  # bytes that say how long a message is
DESCRIPTORS = 253  # that Linux takes with one message at most
ANSWER_SECONDS = 2.0  # that a fork takes at most once the imports are done


class ForkedProcess:
    """A forked run, with as much of subprocess.Popen as a launcher uses."""

    def __init__(self, forks: "Forks", number: int, stdin: IO[bytes]) -> None:
        self._forks = forks
        self._number = number
        self.stdin = stdin  # the pipe whose end the run watches
        self.pid: int | None = None  # None until it is forked
        self.returncode: int | None = None
        self.ended = False  # also where nobody knows the exit status, which is then None

    def has_ended(self) -> bool:
        """Does not wait."""
        self._forks.read_answers()
        return self.ended

    def send_signal(self, number: int) -> None:
        """To the run alone, whose process group it leads; where it is not forked yet, it never will be."""
        if self.pid is None:
            self._forks.await_fork(self)
        if self.ended:
            return
        if self.pid is None:
            self._forks.kill_server()
            self.end(-number)
            return
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wake_group(self) -> None:
        """Let it go on where somebody has frozen it."""
        if self.pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGCONT)

    def kill_group(self) -> None:
        """End it and what it has started, also after it has ended itself."""
        if self.pid is None:
            self.send_signal(signal.SIGKILL)
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def is_lost(self) -> bool:
        """Whether the importing process has died before this run began."""
        return self.pid is None and not self.ended and not self._forks.alive

    def end(self, status: int | None) -> None:
        self.returncode, self.ended = status, True


class Forks:
    """The importing process and the runs forked from it, as seen by the launcher."""

    def __init__(self, command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
        """`command` is what `serve`s on the descriptor whose number is put behind it."""
        self._ours, theirs = socket.socketpair()
        self._processes: dict[int, ForkedProcess] = {}
        self._buffer = b""
        self.alive = True
        with theirs:
            self._server = subprocess.Popen(
                [*command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # a run that cannot be forked is started afresh and says why
                cwd=directory,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the launcher
                pass_fds=[theirs.fileno()],
            )

    def start(
        self, command: Sequence[str], log: IO[bytes], cores: Sequence[int], leases: Sequence[int]
    ) -> ForkedProcess:
        """Fork a run that goes on as `command` would, on `cores` alone."""
        reading, writing = os.pipe()
        number = len(self._processes)
        process = ForkedProcess(self, number, os.fdopen(writing, "wb", buffering=0))
        self._processes[number] = process
        request = json.dumps({"number": number, "command": list(command), "cores": list(cores)}).encode()
        try:
            message = len(request).to_bytes(LENGTH, "big") + request
            socket.send_fds(self._ours, [message], [reading, log.fileno(), *leases])
        except OSError:  # it has ended: `read_answers` sees so
            pass
        finally:
            os.close(reading)
        return process

    def read_answers(self, wait: float = 0.0) -> None:
        """Take in which runs were forked and which have ended."""
        while self.alive and select.select([self._ours], [], [], wait)[0]:
            wait = 0.0
            try:
                data = self._ours.recv(65_536)
            except OSError:
                data = b""
            if not data:
                self.alive = False
                break
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                answer = json.loads(line)
                process = self._processes[answer["number"]]
                process.pid = answer["pid"]
                if "status" in answer:
                    process.end(answer["status"])
        if not self.alive:
            for process in self._processes.values():
                if not process.ended and process.pid is not None and not _is_alive(process.pid):
                    process.end(None)

    def await_fork(self, process: ForkedProcess) -> None:
        """Wait until `process` is forked, unless the imports are still under way, which take seconds."""
        if any(each.pid is not None for each in self._processes.values()):
            self.read_answers(ANSWER_SECONDS)
        else:
            self.read_answers()

    def kill_server(self) -> None:
        """End the importing process; the runs that it has forked go on."""
        self._server.kill()
        self._server.wait()
        self.alive = False

    def close(self) -> None:
        """Nothing is forked any more."""
        self.kill_server()
        self._ours.close()


def _is_alive(pid: int) -> bool:
    """Whether a process that is not our child runs: one that has ended may wait to be reaped by another."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def serve(descriptor: int, main: Callable[[list[str]], int]) -> None:
    """Fork a process for each request on the socket `descriptor`, until its other end is closed.

    A forked process sets sys.argv as the request's command has it and exits with what `main` returns.
    """
    connection = socket.socket(fileno=descriptor)
    children: dict[int, int] = {}  # numbers of requests by process
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, _nothing)  # without a handler there would be no wake-up
    signal.set_wakeup_fd(wake)
    while True:
        ready = select.select([connection.fileno(), woken], [], [])[0]
        if woken in ready:
            with suppress(BlockingIOError):
                os.read(woken, 4096)
            for pid, number in list(children.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    del children[pid]
                    _answer(connection, number=number, pid=pid, status=os.waitstatus_to_exitcode(status))
        if connection.fileno() in ready:
            request, descriptors = _request(connection)
            if request is None:
                return
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which are a library's own
                pid = os.fork()
            if not pid:
                for end in (woken, wake):
                    os.close(end)
                connection.close()
                _become(request, descriptors, main)
            children[pid] = request["number"]
            for inherited in descriptors:
                os.close(inherited)
            _answer(connection, number=request["number"], pid=pid)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass


def _request(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """The next request and the descriptors that come with it; None where the launcher is gone."""
    data, descriptors, _, _ = socket.recv_fds(connection, LENGTH, DESCRIPTORS)
    if not data:
        return None, descriptors
    missing = LENGTH - len(data)
    data += connection.recv(missing, socket.MSG_WAITALL) if missing else b""
    size = int.from_bytes(data, "big")
    request: dict[str, Any] = json.loads(connection.recv(size, socket.MSG_WAITALL))
    return request, descriptors


def _answer(connection: socket.socket, **answer: Any) -> None:
    with suppress(OSError):  # the launcher is gone, which the next look at the socket shows
        connection.sendall(json.dumps(answer).encode() + b"\n")


def _become(request: Mapping[str, Any], descriptors: Sequence[int], main: Callable[[list[str]], int]) -> None:
    """In the forked process: be what a fresh process with the request's command would be. Does not return."""
    status = 1
    try:
        os.setsid()
        if request["cores"] and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, request["cores"])
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for target, source in enumerate((descriptors[0], descriptors[1], descriptors[1])):
            os.dup2(source, target)
        for source in descriptors[:2]:
            os.close(source)
        random.seed()  # forked runs would share the state of unseeded generators
        np.random.seed()
        sys.argv = list(request["command"])
        status = main(sys.argv)
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(status)
