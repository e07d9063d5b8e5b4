"""Runs forked from one process that has done the imports: like fresh ones, and none lost where it dies."""

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

# A module that is a run of these tests: what it does, its argument says, in a forked process or a fresh one.
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
# What the server imports, as long as a file is there: all but what takes seconds.
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


def test_a_forked_run_finds_what_a_fresh_one_finds_but_its_own_random_numbers(local, tmp_path):
    told = []
    for name, forks in (("forked", True), ("another", True), ("fresh", False)):
        one = task(tmp_path, "describe", name, forks)
        start(local, one)  # in turn: each gets the first core
        assert [end.status for end in ends(local)] == [0]
        told.append(what_it_said(one))
        assert "to stderr" in said(one)
    numbers = [number for each in told for number in each.pop("random")]
    assert len({*numbers}) == 6
    assert told[0] == told[1] == told[2]
    assert told[0]["leases"] == 1


def test_exit_statuses_are_those_of_fresh_processes(local, tmp_path):
    statuses = {"status 3": 3, f"signal {signal.SIGKILL:d}": -signal.SIGKILL, "raise": 1, "status 0": 0}
    for what, status in statuses.items():
        one = task(tmp_path, what, what.replace(" ", ""))
        start(local, one)
        assert [end.status for end in ends(local)] == [status], what
    assert "ValueError: on purpose" in said(task(tmp_path, "raise", "raise"))


def test_a_run_is_asked_to_end_and_its_core_is_free_again(local, tmp_path):
    one = task(tmp_path, "wait")
    start(local, one)
    until(lambda: not local.ended() and "started" in said(one))
    (running,) = local.running
    os.kill(running.process.pid, signal.SIGSTOP)  # it could not end until it is woken
    local.stop()
    assert [end.status for end in ends(local)] == [-signal.SIGTERM]
    lease_cores(len(cores())).release()  # the server holds none
    start(local, one)
    local.stop()  # as soon as it has been forked
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
    lease_cores(len(cores())).release()  # nobody holds any
    local.close()  # as where a study's runs have ended and its command then does


def test_where_the_server_dies_no_run_is_lost(local, tmp_path):
    """What it had begun is ended, to be started again, and what it had not is forked by another server."""
    begun, late = task(tmp_path, "wait", "begun"), task(tmp_path, "describe", "late")
    start(local, begun)
    until(lambda: "started" in said(begun))
    process = local.running[0].process.pid
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
    assert [(end.task.name, end.status) for end in ends(local)] == [("begun", None)]
    until(lambda: not command_line(process))
    start(local, late)
    assert [(end.task.name, end.status) for end in ends(local)] == [("late", 0)]


@pytest.mark.parametrize("obstacle", ["imports that fail", "a long name of the temporary folder"])
def test_an_obstacle_costs_no_run(obstacle, local, tmp_path, monkeypatch):
    if obstacle == "imports that fail":
        (tmp_path / "of_the_server.py").write_text("import nowhere")
    else:
        folder = tmp_path / ("long" * 30)
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
    start(local, task(tmp_path, "status 0"))
    assert [end.status for end in ends(local)] == [0]
