"""Runs forked from one process that has done the imports: like fresh ones, and none lost where it dies."""

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from poslab.study.launch.contract import End, Task
from poslab.study.launch.devices import cores, lease_cores
from poslab.study.launch.launchers.local import Local, LocalOptions
from support.processor import needs_two_cores

pytestmark = needs_two_cores

# What a run of these tests does, as its first argument says, in a forked process or a fresh one.
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
        }))
        print("to stderr", file=sys.stderr)
    elif what == "random":
        print(json.dumps([random.random(), float(np.random.rand())]))
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
if sys.argv[1] == "serve":
    time.sleep(float(os.environ.get("SECONDS_OF_IMPORTS", "0")))
    from poslab.study.launch.forks import serve
    serve(int(sys.argv[2]), main)
else:
    sys.exit(main(sys.argv))
"""


@pytest.fixture(autouse=True)
def _own_leases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The tests neither wait for the machine's other runs nor hold them up."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def launcher() -> Local:
    return Local(LocalOptions(restarts=0, runs_per_gpu=1, cores_per_run=1), runs=2)


def task(folder: Path, what: str, name: str = "run", forks: bool = True) -> Task:
    program = (sys.executable, "-c", PROGRAM)
    return Task(
        name,
        (*program, what),
        folder,
        folder / "logs" / f"{name}.txt",
        folder,
        cuda=False,
        devices=1,
        nodes=1,
        forks=(*program, "serve") if forks else None,
    )


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def ends_of(local: Local, count: int) -> list[End]:
    """How `count` tasks of a launcher ended."""
    ends: list[End] = []
    until(lambda: ends.extend(local.ended()) or len(ends) == count)
    return ends


def printed(of: Task) -> str:
    return of.log.read_text() if of.log.exists() else ""


def described(of: Task) -> dict[str, Any]:
    lines: dict[str, Any] = json.loads(
        next(line for line in printed(of).splitlines() if line.startswith("{"))
    )
    return lines


def test_a_forked_run_finds_what_a_fresh_one_finds(tmp_path):
    local = launcher()
    forked, fresh = task(tmp_path, "describe", "forked"), task(tmp_path, "describe", "fresh", forks=False)
    try:
        for each in (forked, fresh):  # in turn: both get the first core
            assert local.start(each)
            assert [end.status for end in ends_of(local, 1)] == [0]
    finally:
        local.close()
    assert described(forked) == described(fresh)
    assert described(forked)["leases"] == 1
    assert "to stderr" in printed(forked)


def test_a_prepared_launcher_imports_before_its_first_run(tmp_path):
    """By the process that then forks the runs, with the threads and the core that they are to have."""
    local = launcher()
    one = task(tmp_path, "describe")
    try:
        local.prepare(one.forks, tmp_path)
        process = local.forks._server
        assert local.start(one)
        assert [end.status for end in ends_of(local, 1)] == [0]
        assert local.forks._server is process
    finally:
        local.close()
    fresh = task(tmp_path, "describe", "fresh", forks=False)
    assert local.start(fresh)
    assert [end.status for end in ends_of(local, 1)] == [0]
    assert described(one) == described(fresh)


def test_a_prepared_launcher_that_is_not_needed_leaves_no_process(tmp_path, monkeypatch):
    monkeypatch.setenv("SECONDS_OF_IMPORTS", "60")
    local = launcher()
    local.prepare(task(tmp_path, "describe").forks, tmp_path)
    process = local.forks._server
    local.close()
    assert process.poll() is not None
    local.close()  # as where a study's runs are made and its command then ends


def test_exit_statuses_are_those_of_fresh_processes(tmp_path):
    local = launcher()
    wanted = {"status 3": 3, f"signal {signal.SIGKILL:d}": -signal.SIGKILL, "raise": 1, "status 0": 0}
    try:
        for what, status in wanted.items():
            one = task(tmp_path, what, what.replace(" ", ""))
            assert local.start(one)
            assert [end.status for end in ends_of(local, 1)] == [status], what
    finally:
        local.close()
    assert "ValueError: on purpose" in printed(task(tmp_path, "raise", "raise"))


def test_forked_runs_share_no_random_numbers(tmp_path):
    local = launcher()
    both = [task(tmp_path, "random", name) for name in ("one", "other")]
    try:
        assert all(local.start(each) for each in both)
        ends_of(local, 2)
    finally:
        local.close()
    one, other = (json.loads(printed(each)) for each in both)
    assert one[0] != other[0]
    assert one[1] != other[1]


def test_a_run_is_asked_to_end_and_its_core_is_free_again(tmp_path):
    local = launcher()
    one = task(tmp_path, "wait")
    try:
        assert local.start(one)
        until(lambda: not local.ended() and "started" in printed(one))
        (running,) = local.running
        os.kill(running.process.pid, signal.SIGSTOP)  # it could not end until it goes on
        local.stop()
        assert [end.status for end in ends_of(local, 1)] == [-signal.SIGTERM]
        lease = lease_cores(len(cores()))  # the importing process holds none
        assert lease is not None
        lease.release()
    finally:
        local.close()


def test_a_run_notices_that_its_command_is_gone(tmp_path):
    local = launcher()
    one = task(tmp_path, "wait")
    try:
        assert local.start(one)
        until(lambda: "started" in printed(one))
        local.running[0].process.stdin.close()
        until(lambda: "closed" in printed(one))
        ends_of(local, 1)
    finally:
        local.close()


def test_a_stop_during_the_imports_does_not_wait_for_them(tmp_path, monkeypatch):
    monkeypatch.setenv("SECONDS_OF_IMPORTS", "60")
    local = launcher()
    both = [task(tmp_path, "wait", name) for name in ("one", "other")]
    try:
        assert all(local.start(each) for each in both)
        local.stop()
        assert [end.status for end in ends_of(local, 2)] == [-signal.SIGTERM] * 2
    finally:
        local.close()
    assert not any(map(printed, both))


def test_where_the_importing_process_dies_no_run_is_lost(tmp_path, monkeypatch):
    """What it had begun is noticed when it ends, and what it had not is started afresh."""
    local = launcher()
    begun, late = task(tmp_path, "wait", "begun"), task(tmp_path, "describe", "late")
    try:
        assert local.start(begun)
        until(lambda: "started" in printed(begun))
        os.kill(local.forks._server.pid, signal.SIGSTOP)
        assert local.start(late)  # nobody answers
        os.kill(local.forks._server.pid, signal.SIGKILL)
        assert [(end.task.name, end.status) for end in ends_of(local, 1)] == [("late", 0)]
        assert described(late)["leads"]
        local.running[0].process.stdin.close()
        assert [(end.task.name, end.status) for end in ends_of(local, 1)] == [("begun", None)]
    finally:
        local.close()


def test_a_server_that_cannot_import_costs_no_run(tmp_path):
    local = launcher()
    one = task(tmp_path, "status 0")
    broken = Task(**{**vars(one), "forks": (sys.executable, "-c", "raise ImportError")})
    try:
        assert local.start(broken)
        assert [end.status for end in ends_of(local, 1)] == [0]
    finally:
        local.close()
