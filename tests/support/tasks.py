"""Tasks of a launcher that are small programs."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any

from poslab.study.launch.contract import End, Launcher, Task
from support.forks import Forked
from support.processes import PATIENCE

WHO = """
import json, os, sys
names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "POSLAB_LIFELINE")
told = {name: os.environ.get(name) for name in names}
leads = os.getsid(0) == os.getpid()
print(json.dumps({**told, "cores": sorted(os.sched_getaffinity(0)), "cwd": os.getcwd(), "leads": leads}))
print("to stderr", file=sys.stderr)
"""


def make_task(
    folder: Path, *program: str, name: str = "run", cuda: bool = False, devices: int = 1, nodes: int = 1
) -> Task:
    """Return a task that runs a Python program, given as text, with its arguments."""
    log = folder / "logs" / f"{name}.txt"
    return Task(name, (sys.executable, "-c", *program), folder, log, folder, cuda, devices, nodes)


def until(
    condition: Callable[[], object], seconds: float = PATIENCE, command: Popen[bytes] | Forked | None = None
) -> None:
    """Wait until the condition is true, which has to happen while the `command` runs."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        assert command is None or command.poll() is None, "the command ended before"
        time.sleep(0.02)


def ends(of: Launcher, number: int = 1) -> list[End]:
    """Return the ends of so many tasks of a launcher."""
    found: list[End] = []

    def are_there() -> bool:
        found.extend(of.ended())
        return len(found) >= number

    until(are_there)
    return found


def said(task: Task) -> str:
    """Return what a task has printed so far."""
    return task.log.read_text() if task.log.exists() else ""


def what_it_said(task: Task) -> dict[str, Any]:
    """Return the values printed by a task that runs WHO."""
    lines = task.log.read_text().splitlines()
    told: dict[str, Any] = json.loads(next(line for line in lines if line.startswith("{")))
    return told
