"""A Slurm cluster on this machine, and the launcher that is tested on it."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from poslab.config.compose import arms
from poslab.study.launch.contract import End, Launcher, Task, launcher_class
from support.commands import ROOT
from support.models import CONF
from support.tasks import ends, make_task

CLUSTER = ROOT / "tests" / "slurm" / "cluster.sh"
ENDS_ON_SIGTERM = "import signal, time, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
# Like a run: the first SIGTERM begins a checkpoint, which takes a while; a second one aborts it.
WRITES_ON_SIGTERM = """
import os, signal, sys, time
from pathlib import Path
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
Path("started").touch()
while not told:
    time.sleep(0.05)
time.sleep(2)
print("told", len(told), "times", flush=True)
sys.exit(143)
"""
WAITS_FOR_A_WORD = """
import sys, time
from pathlib import Path
Path("started").touch()
while not Path("go").exists():
    time.sleep(0.05)
sys.exit(5)
"""
TWO_TURNS = """
import os
rank = os.environ["SLURM_PROCID"]
if rank != "0":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
from pathlib import Path
first = not Path("started" + rank).exists()
Path("started" + rank).touch()
while first:
    time.sleep(0.05)
print("second turn")
"""


@contextmanager
def cluster_in(folder: Path, tracking: str = "linuxproc") -> Iterator[Path]:
    """Start a cluster on this machine, with its files in `folder`."""
    if shutil.which("slurmctld") is None or os.getuid() != 0:
        pytest.skip("needs root, and Slurm: tests/slurm/cluster.sh install")
    started = subprocess.run(
        [CLUSTER, "start", folder, tracking], capture_output=True, text=True, check=False, timeout=120
    )
    if "control groups" in started.stderr:
        pytest.skip(started.stderr.strip())
    assert started.returncode == 0, started.stderr
    assert started.stdout == f"export SLURM_CONF={folder}/slurm.conf\n"
    try:
        yield folder
    finally:
        subprocess.run([CLUSTER, "stop", folder], check=True, timeout=180)


def launcher(**changes: object) -> Launcher:
    section = {**arms(CONF / "launcher")["slurm"], "cores_per_run": 1, "minutes": 5, **changes}
    kind, options = launcher_class(section)
    return kind(options, 1)


def slurm(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def task(folder: Path, code: str, name: str = "run", devices: int = 1, cuda: bool = False) -> Task:
    made, study = make_task(folder, code, name=name, cuda=cuda, devices=devices), folder / "study"
    return replace(made, log=study / name / "log.txt", study=study)


def started(made: Task, **changes: object) -> Launcher:
    """Return a launcher that has started the task."""
    own = launcher(**changes)
    assert own.start(made)
    return own


def end_of(made: Task) -> End:
    """Return how a task ends with a separate launcher."""
    (end,) = ends(started(made))
    return end


def job_of(made: Task) -> str:
    return str(json.loads((made.study / ".launcher" / "slurm.json").read_text())[made.name])


def state_of(made: Task) -> str:
    return slurm("squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job_of(made)}")
