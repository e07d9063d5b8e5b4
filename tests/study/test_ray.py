"""launcher=ray, with a private Ray on this machine, which the tests share since it starts slowly."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from poslab.config.schema import ConfigError
from poslab.study.launch.contract import End
from poslab.study.launch.launchers.ray import Ray, RayOptions
from poslab.study.launch.machine import cores
from support.processes import command_line
from support.tasks import WHO, make_task, said, until, what_it_said

pytestmark = [
    pytest.mark.cluster,
    # Checked without importing it: the launcher sets variables that Ray reads at import.
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray: --extra ray"),
]

# A run that prints a SIGTERM and the end of its lifeline.
RUN = """
import os, signal, sys, threading
over = threading.Event()
def on_term(number, frame):
    print("asked", flush=True)
    over.set()
signal.signal(signal.SIGTERM, on_term)
def follow():
    os.read(0, 1)
    print("closed", flush=True)
    over.set()
threading.Thread(target=follow, daemon=True).start()
print("started", os.getppid(), flush=True)
over.wait(60)
print("ended", flush=True)
os._exit(143)
"""
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, lambda number, frame: print("asked", flush=True))
print("started", flush=True)
for _ in range(60):
    time.sleep(1)
"""
# A command with one run. Arguments: Ray's address or nothing, a folder, the run's program.
COMMAND = """
import os, signal, sys, time
from pathlib import Path
from poslab.study.launch.contract import Task
from poslab.study.launch.launchers.ray import Ray, RayOptions
stopped = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: stopped.append(number))
address, folder, program = sys.argv[1:]
launcher = Ray(RayOptions(restarts=0, address=address or None, cores_per_run=1, runs_per_gpu=1), 1)
place, log = Path(folder), Path(folder) / "logs" / "run.txt"
launcher.start(Task("run", (sys.executable, "-c", program), place, log, place, False, 1, 1))
while not (ends := launcher.ended()):
    if stopped:
        print("stopped", flush=True)
        launcher.stop()
        stopped.clear()
    time.sleep(0.05)
print("status", ends[0].status, flush=True)
launcher.close()
"""


@pytest.fixture(scope="module")
def shared():
    with tempfile.TemporaryDirectory() as home, mock.patch.dict(os.environ, {"HOME": home}):  # for its token
        before = signal.signal(signal.SIGTERM, handler)
        launcher = ray_launcher()
        try:
            yield launcher
        finally:
            launcher.close()
            signal.signal(signal.SIGTERM, before)


@pytest.fixture
def launcher(shared):
    """The launcher, without runs before and after a test."""
    yield shared
    shared.kill()
    shared.kill()
    until(lambda: shared.ended() is not None and not shared.started)


def handler(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def ray_launcher(address: str | None = None, cores_per_run: int = 1, runs_per_gpu: int = 1) -> Ray:
    options = RayOptions(restarts=0, address=address, cores_per_run=cores_per_run, runs_per_gpu=runs_per_gpu)
    return Ray(options, 1)


def with_options(launcher: Ray, **changes: Any) -> Ray:
    """Return a launcher with other options on the same Ray."""
    other = ray_launcher(**changes)
    other._connected = launcher._connected
    return other


def all_ends(launcher: Ray) -> dict[str, End]:
    found: list[End] = []

    def look() -> bool:
        found.extend(launcher.ended())
        return not launcher.started

    until(look, 60)
    return {end.task.name: end for end in found}


@contextmanager
def command(address: str, folder: Path, program: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command in its own process group, as a shell does in a terminal."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, address, str(folder), program],
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_statuses_and_environment_of_runs(launcher, tmp_path):
    programs = {"well": WHO, "badly": "raise SystemExit(3)", "killed": "import os; os.kill(os.getpid(), 9)"}
    tasks = [make_task(tmp_path, program, name=name) for name, program in programs.items()]
    assert all(launcher.start(task) for task in tasks)
    ends = all_ends(launcher)
    assert {name: end.status for name, end in ends.items()} == {"well": 0, "badly": 3, "killed": -9}
    told = what_it_said(tasks[0])
    assert (told["OMP_NUM_THREADS"], told["MKL_NUM_THREADS"]) == ("1", "1")
    assert (told["POSLAB_LIFELINE"], told["cwd"], told["leads"]) == ("stdin", str(tmp_path), True)
    assert "to stderr" in said(tasks[0])
    # It stays on this machine, and keeps our signal handlers.
    assert [node["NodeManagerAddress"] for node in launcher.ray.nodes()] == ["127.0.0.1"]
    assert launcher.ray.cluster_resources()["CPU"] == len(cores())
    assert signal.getsignal(signal.SIGTERM) is handler


def test_a_killed_worker_interrupts_one_run(launcher, tmp_path):
    room = len(cores())
    tasks = [make_task(tmp_path, RUN, name=str(number)) for number in range(room + 1)]
    for task in tasks:
        launcher.start(task)
    until(lambda: sum("started" in said(task) for task in tasks) == room)
    (unstarted,) = (task for task in tasks if "started" not in said(task))
    first = next(task for task in tasks if task is not unstarted)
    os.kill(int(said(first).split()[1]), signal.SIGKILL)
    ends: list[End] = []
    until(lambda: ends.extend(launcher.ended()) or ends)
    assert [(end.task.name, end.status) for end in ends] == [(first.name, None)]
    assert "killed" in ends[0].reason
    until(lambda: "started" in said(unstarted))
    until(lambda: "ended" in said(first))
    assert said(first).split()[2:] == ["closed", "ended"]  # gently, and it was not repeated
    assert all("ended" not in said(task) for task in tasks if task is not first)


def test_runs_are_asked_to_end(launcher, tmp_path):
    tasks = [make_task(tmp_path, RUN, name=str(number)) for number in range(len(cores()) + 1)]
    for task in tasks:
        launcher.start(task)
    until(lambda: sum("started" in said(task) for task in tasks) == len(cores()))
    launcher.stop()
    ends = all_ends(launcher)
    begun = [task for task in tasks if "started" in said(task)]
    assert len(begun) == len(cores())
    for task in begun:
        assert said(task).split()[2:] == ["asked", "ended"]
        assert ends[task.name].status == 143
    (pending,) = (task for task in tasks if task not in begun)
    assert (ends[pending.name].status, ends[pending.name].restartable) == (None, False)


def test_a_run_that_does_not_end_is_killed(launcher, tmp_path):
    task = make_task(tmp_path, DEAF)
    launcher.start(task)
    until(lambda: "started" in said(task))
    launcher.stop()
    until(lambda: "asked" in said(task))
    launcher.kill()
    assert all_ends(launcher)["run"].status == -signal.SIGKILL


def test_a_run_ends_gently_when_its_command_is_killed(launcher, tmp_path):
    launcher.start(make_task(tmp_path, "", name="other"))  # so that there is a cluster to join
    address = launcher.ray.get_runtime_context().gcs_address
    task = make_task(tmp_path, RUN)
    with command(address, tmp_path, RUN) as process:
        until(lambda: "started" in said(task))
        process.kill()
        until(lambda: "ended" in said(task))
    assert said(task).split()[2:] == ["closed", "ended"]


def test_after_ctrl_c_the_command_ends_its_runs(tmp_path):
    task = make_task(tmp_path, RUN)
    with (
        tempfile.TemporaryDirectory() as home,
        mock.patch.dict(os.environ, {"HOME": home}),
        command("", tmp_path, RUN) as process,
    ):
        until(lambda: "started" in said(task), 60)
        worker = int(said(task).split()[1])
        os.killpg(process.pid, signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    assert printed.splitlines() == ["stopped", "status 143"]
    assert said(task).split()[2:] == ["asked", "ended"]
    until(lambda: not command_line(worker))


@pytest.mark.parametrize(
    ("options", "wanted", "advice"),
    [
        ({}, {"nodes": 2}, "launcher=slurm"),
        ({"runs_per_gpu": 2}, {}, "runs_per_gpu"),
        ({"runs_per_gpu": 2}, {"cuda": True, "devices": 2}, "trainer.devices=1"),
        ({"cores_per_run": 100_000}, {}, "cores_per_run=100000"),
        ({}, {"cuda": True, "devices": 1_000}, "1000 GPUs"),
    ],
)
def test_resources_that_ray_never_has_are_refused(launcher, tmp_path, options, wanted, advice):
    launcher.start(make_task(tmp_path, "", name="other"))
    other, task = with_options(launcher, **options), make_task(tmp_path, "", **wanted)
    with pytest.raises(ConfigError, match=advice):
        other.start(task)


def test_a_missing_cluster_is_refused(tmp_path):
    with socket.socket() as nobody:  # bound, but not listening
        nobody.bind(("127.0.0.1", 0))
        absent = ray_launcher(address=f"127.0.0.1:{nobody.getsockname()[1]}")
        with pytest.raises(ConfigError, match=r"launcher\.address"):
            absent.start(make_task(tmp_path, ""))
