"""Commands forked from a process that has imported PyTorch, Lightning, Hydra and other libraries once.

That takes most of the seconds of a short command. poslab itself is not imported before the fork: a command
imports it as a user's does, with its own arguments, directory, environment, output and signals. The processes
that it starts are fresh ones.

`python -m support.forks FD` is that process. For each message on the socket FD it forks a command, answers
with the command's process and then with how it ended.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NoReturn

IMPORTED = (
    "hydra",
    "jaxtyping",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "pydantic",
    "pytorch_lightning",
    "rich.live",
    "rich.progress",
    "scipy.stats",
    "torch",
)


# Libraries that Lightning imports for nothing and that take their settings from the environment.
READ_ENVIRONMENT = ("huggingface_hub", "transformers")


@cache
def _forking(tests: str) -> socket.socket:
    """The other end of its socket, one for this process; it ends when this process does."""
    ours, theirs = socket.socketpair()
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "support.forks", str(theirs.fileno())],
            cwd=tests,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    return ours


def forked(
    arguments: list[str], cwd: Path, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """What `python *arguments` does and prints. After `timeout` seconds it is killed."""
    forking = _forking(str(Path(__file__).parents[1]))
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        message = {"arguments": arguments, "cwd": str(cwd), "environment": dict(environment)}
        encoded = json.dumps(message).encode()
        socket.send_fds(forking, [len(encoded).to_bytes(4)], [out.fileno(), error.fileno()])
        forking.sendall(encoded)
        process = _read(forking)
        if not select.select([forking], [], [], timeout)[0]:
            os.kill(process, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(_read(forking))
        out.seek(0)
        error.seek(0)
        return subprocess.CompletedProcess(arguments, status, out.read(), error.read())


def _read(forking: socket.socket) -> int:
    number = forking.recv(4, socket.MSG_WAITALL)
    if len(number) < 4:
        raise RuntimeError("the process that forks the tests' commands has ended")
    return int.from_bytes(number, signed=True)


def _serve(forking: socket.socket) -> list[str]:
    """Returns in each forked command, with its arguments; ends when nobody is left to ask for one."""
    while True:
        head, outputs, _, _ = socket.recv_fds(forking, 4, 2)
        if len(head) < 4:
            os._exit(0)
        message = json.loads(forking.recv(int.from_bytes(head), socket.MSG_WAITALL))
        process = os.fork()
        if not process:
            for number, output in enumerate(outputs, start=1):
                os.dup2(output, number)
                os.close(output)
            forking.close()
            os.chdir(message["cwd"])
            os.environ.clear()
            os.environ.update(message["environment"])
            return message["arguments"]
        for output in outputs:
            os.close(output)
        forking.sendall(process.to_bytes(4, signed=True))
        _, status = os.waitpid(process, 0)
        forking.sendall(status.to_bytes(4, signed=True))


def _become(arguments: list[str]) -> NoReturn:
    """Be as a fresh Python that starts with `arguments`, to the process's end."""
    import random

    import numpy as np

    for name in list(sys.modules):
        if name.partition(".")[0] in READ_ENVIRONMENT:
            del sys.modules[name]
    random.seed()
    np.random.seed()
    tempfile.tempdir = None  # that of the environment
    sys.argv = arguments
    sys.path[0] = str(Path(arguments[0]).parent)
    try:
        runpy.run_path(arguments[0], run_name="__main__")
        status = 0
    except SystemExit as leaving:
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # without clearing PyTorch's modules, which takes a second


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    assert "poslab" not in sys.modules
    gc.collect()
    gc.freeze()  # what is imported is never garbage, and looking at it would copy it
    _become(_serve(socket.socket(fileno=int(sys.argv[1]))))
