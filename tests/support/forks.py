"""Commands forked from a process that has imported PyTorch, Lightning, Hydra and other libraries once.

The imports take most of the seconds of a short command. poslab is not imported before the fork: a command
imports it as a user's does, with its own arguments, directory, environment, output, session and signals. The
processes that it starts are fresh ones.

`python -m support.forks FD` is that process. For each message on the connection FD it forks a keeper, which
forks the command and sends, on a separate connection, the command's process id and later its status.
"""

import atexit
import base64
import gc
import importlib
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from io import TextIOWrapper
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import IO, Any, NoReturn

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


# Libraries that Lightning imports without need and that read settings from the environment.
READ_ENVIRONMENT = ("huggingface_hub", "transformers")

UNDRAWN = "POSLAB_TESTS_UNDRAWN"  # set if the report has a pixel in place of each paper figure
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg=="
)


class Undrawn(MetaPathFinder):
    """Replaces the drawing of paper figures at import, which takes most of a report's time."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "poslab.report.render.paper":
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None
        loader: Any = spec.loader
        load = loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            module.draw_all = undrawn

        loader.exec_module = exec_module
        return spec


def undrawn(charts: Sequence[Any]) -> list[dict[str, bytes]]:
    """Return a pixel for each figure in each format."""
    from poslab.report.charts import FORMATS

    return [dict.fromkeys(FORMATS, PIXEL) for _ in charts]


def one_of_each(charts: Sequence[Any]) -> list[dict[str, bytes]]:
    """Draw the first figure of each kind; the files of the others are empty."""
    from poslab.report.charts import FORMATS
    from poslab.report.render.paper import draw

    first = {type(chart): chart for chart in reversed(charts)}
    return [draw(chart) if chart is first[type(chart)] else dict.fromkeys(FORMATS, b"") for chart in charts]


@cache
def _forking(tests: str) -> Connection:
    """Start the forking process, once, and return its connection; it ends with this process."""
    ours, theirs = Pipe()
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "support.forks", str(theirs.fileno())],
            cwd=tests,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    return ours


class Forked:
    """A running command, with the methods of subprocess.Popen."""

    def __init__(
        self,
        arguments: list[str],
        cwd: Path,
        environment: Mapping[str, str],
        output: IO[Any],
        error: IO[Any],
    ) -> None:
        """Start `python *arguments`."""
        forking = _forking(str(Path(__file__).parents[1]))
        self._keeper, theirs = Pipe()
        with theirs:
            forking.send((arguments, str(cwd), dict(environment)))
            for file in (output, error, theirs):
                send_handle(forking, file.fileno(), None)
        self.returncode: int | None = None
        self.pid: int = self._keeper.recv()

    def poll(self) -> int | None:
        if self.returncode is None and self._keeper.poll():
            self.returncode = os.waitstatus_to_exitcode(self._keeper.recv())
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not self._keeper.poll(timeout):
            raise subprocess.TimeoutExpired("the command", timeout or 0)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> "Forked":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()


def forked(
    arguments: list[str], cwd: Path, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run `python *arguments` and return its output. After `timeout` seconds it is killed."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        process = Forked(arguments, cwd, environment, out, error)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout)
        process.kill()
        status = process.wait()
        out.seek(0)
        error.seek(0)
        return subprocess.CompletedProcess(arguments, status, out.read(), error.read())


def _serve(forking: Connection) -> list[str]:
    """Return in each forked command, with its arguments; exit when the connection is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are not waited for
    while True:
        try:
            arguments, cwd, environment = forking.recv()
        except EOFError:
            os._exit(0)
        given = [recv_handle(forking) for _ in range(3)]
        if not os.fork():
            forking.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _keep(*given)
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(environment)
            return arguments
        for number in given:
            os.close(number)


def _keep(output: int, error: int, answer: int) -> None:
    """Fork the command, in which this returns, and send how it ends."""
    process = os.fork()
    with Connection(answer) as keeper:
        if process:
            os.close(output)
            os.close(error)
            keeper.send(process)
            with suppress(OSError):  # the other end is closed
                keeper.send(os.waitpid(process, 0)[1])
            os._exit(0)
    for number, file in enumerate((output, error), start=1):
        os.dup2(file, number)
        os.close(file)
    os.setsid()


def _become(arguments: list[str]) -> NoReturn:
    """Act as a fresh Python started with `arguments`, which may be `-m MODULE`, until the process ends."""
    import random

    import numpy as np
    import torch

    if threads := os.environ.get("OMP_NUM_THREADS"):  # a fresh one reads it when it imports PyTorch
        torch.set_num_threads(int(threads))
    if UNDRAWN in os.environ:
        sys.meta_path.insert(0, Undrawn())
    for name in list(sys.modules):
        if name.partition(".")[0] in READ_ENVIRONMENT:
            del sys.modules[name]
    random.seed()
    np.random.seed()
    tempfile.tempdir = None  # that of the environment
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(write_through=bool(os.environ.get("PYTHONUNBUFFERED")))
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            sys.path[0] = str(Path(arguments[0]).parent)
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
    gc.freeze()  # imported objects are never garbage, and collection would copy their pages
    _become(_serve(Connection(int(sys.argv[1]))))
