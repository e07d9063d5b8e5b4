"""Runs forked from one process after its imports equal fresh ones, and none is lost if it dies."""

import os
import signal
import sys
import tempfile
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path

import pytest

from poslab.study.launch.contract import Task
from poslab.study.launch.launchers.local import Local, LocalOptions
from poslab.study.launch.leases import lease_cores
from poslab.study.launch.machine import cores
from support.processes import command_line
from support.processor import needs_two_cores
from support.tasks import ends, make_task, said, until, what_it_said

pytestmark = needs_two_cores

# The module of a run in these tests, forked or fresh; its argument says what it does.
PROGRAM = """
import json, os, random, signal, sys, time
import numpy as np
def main(arguments):
    what = arguments[-1]
    if what == "describe":
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        open_files = [os.readlink(link) for link in links if os.path.lexists(link)]
        print(json.dumps({
            "threads": os.environ["OMP_NUM_THREADS"],
            "lifeline": os.environ["POSLAB_LIFELINE"],
            "cores": sorted(os.sched_getaffinity(0)),
            "directory": os.getcwd(),
            "leads": os.getsid(0) == os.getpid(),
            "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
            "terminate": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
            "child": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
            "leases": sum("core-" in name for name in open_files),
            "sockets": sum(name.startswith("socket") for name in open_files),
            "argument": arguments[-1],
            "random": [random.random(), float(np.random.rand())],
        }))
        print("to stderr", file=sys.stderr)
    elif what == "raise":
        raise ValueError("on purpose")
    elif what == "wait":
        print("started", flush=True)
        os.read(0, 1)
        print("closed", flush=True)
    elif what.startswith("signal"):
        os.kill(os.getpid(), int(what.split()[1]))
    elif what.startswith("status"):
        sys.exit(int(what.split()[1]))
    return 0
def exit_with(status):
    sys.stdout.flush()
    os._exit(status)
if __name__ == "__main__":
    exit_with(main(sys.argv))
"""
# The imports of the server, while a file exists: all except the slow ones.
PRELOAD = """
import os, sys, time
sys.modules["poslab.study.run.execute"] = None
while os.path.exists(os.environ["TMPDIR"] + "/importing"):
    time.sleep(0.01)
import poslab.study.run.preload
"""


@pytest.fixture(autouse=True)
def _programs(own_leases, monkeypatch, tmp_path):
    (tmp_path / "of_a_run.py").write_text(PROGRAM)
    (tmp_path / "of_the_server.py").write_text(PRELOAD)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture
def local():
    launcher = Local(LocalOptions(restarts=0, runs_per_gpu=1, cores_per_run=1), runs=2)
    yield launcher
    launcher.kill()
    launcher.close()


def task(folder: Path, what: str, name: str = "run", forks: bool = True) -> Task:
    program = (sys.executable, "-m", "of_a_run", what)
    return replace(make_task(folder, name=name), command=program, preload="of_the_server" if forks else None)


def start(local: Local, *tasks: Task) -> None:
    for one in tasks:
        until(lambda one=one: local.start(one))


def test_a_forked_run_has_the_state_of_a_fresh_one_except_random_numbers(local, tmp_path):
    states = []
    for name, forks in (("forked", True), ("another", True), ("fresh", False)):
        run = task(tmp_path, "describe", name, forks)
        start(local, run)  # one after the other: each gets the first core
        assert [end.status for end in ends(local)] == [0]
        states.append(what_it_said(run))
        assert "to stderr" in said(run)
    numbers = [number for state in states for number in state.pop("random")]
    assert len({*numbers}) == 6
    assert states[0] == states[1] == states[2]
    assert states[0]["leases"] == 1


def test_exit_statuses_equal_those_of_fresh_processes(local, tmp_path):
    statuses = {"status 3": 3, f"signal {signal.SIGKILL:d}": -signal.SIGKILL, "raise": 1, "status 0": 0}
    for what, status in statuses.items():
        one = task(tmp_path, what, what.replace(" ", ""))
        start(local, one)
        assert [end.status for end in ends(local)] == [status], what
    assert "ValueError: on purpose" in said(task(tmp_path, "raise", "raise"))


def test_a_stopped_run_ends_and_frees_its_core(local, tmp_path):
    one = task(tmp_path, "wait")
    start(local, one)
    until(lambda: not local.ended() and "started" in said(one))
    local.stop()
    assert [end.status for end in ends(local)] == [-signal.SIGTERM]
    lease_cores(len(cores())).release()  # the server holds none
    start(local, one)
    local.stop()  # as soon as it was forked
    assert [end.status for end in ends(local)] == [-signal.SIGTERM]


class Interrupted(Exception):
    pass


def test_a_stop_does_not_wait_for_the_imports(local, tmp_path):
    def interrupt(number, frame):
        raise Interrupted

    (tmp_path / "importing").touch()
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(Interrupted):
            local.start(task(tmp_path, "wait"))
    finally:
        signal.signal(signal.SIGALRM, before)
    server = forkserver._forkserver._forkserver_pid
    local.close()
    assert not command_line(server)
    assert not [*tmp_path.glob("pymp-*")]
    lease_cores(len(cores())).release()  # no process holds any
    local.close()  # as if a study's runs have ended and then its command


def test_ctrl_c_does_not_end_the_server_as_it_starts(local, tmp_path, monkeypatch):
    """A terminal sends it to all processes of a command."""

    def ensure_running():
        started()
        os.kill(forkserver._forkserver._forkserver_pid, signal.SIGINT)

    started = forkserver.ensure_running
    monkeypatch.setattr(forkserver, "ensure_running", ensure_running)
    assert local.start(task(tmp_path, "status 0"))
    assert [end.status for end in ends(local)] == [0]


def test_no_run_is_lost_if_the_server_dies(local, tmp_path):
    """Started runs are ended and started again; the others are forked by another server."""
    begun, late = task(tmp_path, "wait", "begun"), task(tmp_path, "describe", "late")
    start(local, begun)
    until(lambda: "started" in said(begun))
    process = local.running[0].process.pid
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
    assert [(end.task.name, end.status) for end in ends(local)] == [("begun", 255)]
    until(lambda: not command_line(process))
    start(local, late)
    assert [(end.task.name, end.status) for end in ends(local)] == [("late", 0)]


@pytest.mark.parametrize("obstacle", ["imports that fail", "a long name of the temporary folder"])
def test_an_obstacle_loses_no_run(obstacle, local, tmp_path, monkeypatch):
    if obstacle == "imports that fail":
        (tmp_path / "of_the_server.py").write_text("import nowhere")
    else:
        folder = tmp_path / ("long" * 30)
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
    start(local, task(tmp_path, "status 0"))
    assert [end.status for end in ends(local)] == [0]
