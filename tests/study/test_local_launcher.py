"""launcher=local and its leases, with real processes."""

import io
import itertools
import multiprocessing
import os
import signal
from collections.abc import Iterable
from typing import Literal

import pytest
from rich.console import Console

from poslab.config.schema import ConfigError
from poslab.study.display.study_view import StudyDisplay
from poslab.study.launch.contract import Task
from poslab.study.launch.devices import gpus
from poslab.study.launch.launchers.local import Local, LocalOptions
from poslab.study.launch.leases import lease_cores, lease_gpus
from poslab.study.launch.machine import cores
from poslab.study.pool import Member, Pool
from poslab.study.run.plan import plan
from poslab.study.run.stopping import Stopper
from support.processes import command_line
from support.processor import needs_two_cores
from support.runs import request
from support.tasks import WHO, make_task, said, until, what_it_said

pytestmark = pytest.mark.usefixtures("own_leases")

# A leader with a child in its process group; each prints the signals that it receives.
FAMILY = """
import os, signal, subprocess, sys, time
def on_term(number, frame):
    print(role, "asked", flush=True)
    if role == "leader":
        sys.exit(143)
role = sys.argv[1]
signal.signal(signal.SIGTERM, on_term)
if role == "leader":
    subprocess.Popen([sys.executable, "-c", sys.argv[2], "child"])
print(role, os.getpid(), flush=True)
time.sleep(60)
"""
# Prints when its standard input is closed, and ends when the file appears.
STUBBORN = """
import os, pathlib, sys, time
print("started", flush=True)
os.read(0, 1)
print("closed", flush=True)
until = time.monotonic() + 60
while not pathlib.Path(sys.argv[1]).exists() and time.monotonic() < until:
    time.sleep(0.02)
"""


def local(runs: int = 1, runs_per_gpu: int = 1, cores_per_run: Literal["auto"] | int = "auto") -> Local:
    return Local(LocalOptions(restarts=0, runs_per_gpu=runs_per_gpu, cores_per_run=cores_per_run), runs)


def statuses(launcher: Local, tasks: Iterable[Task]) -> dict[str, int | None]:
    """Run the tasks, each as soon as there is room for it; return their statuses."""
    found: dict[str, int | None] = {}
    waiting = list(tasks)

    def look() -> bool:
        found.update({end.task.name: end.status for end in launcher.ended()})
        while waiting and launcher.start(waiting[0]):
            waiting.pop(0)
        return not waiting and not launcher.running

    until(look)
    return found


@needs_two_cores
@pytest.mark.parametrize(
    ("runs", "cores_per_run", "devices", "own", "threads"),
    [
        (1, "auto", 1, len(cores()), len(cores())),
        (10 * len(cores()), "auto", 1, 1, 1),
        (1, 2, 2, 2, 1),  # two processes on one group of cores
        (1, 1, 2, 1, 1),
    ],
)
def test_a_run_has_its_share_of_the_cores_and_a_log(tmp_path, runs, cores_per_run, devices, own, threads):
    before = cores()
    task = make_task(tmp_path, WHO, devices=devices)
    task.log.parent.mkdir()
    task.log.write_text("before\n")
    assert statuses(local(runs, cores_per_run=cores_per_run), [task]) == {"run": 0}
    assert task.log.read_text().startswith("before\n")
    assert "to stderr\n" in task.log.read_text()
    told = what_it_said(task)
    assert len(told["cores"]) == own
    assert told["OMP_NUM_THREADS"] == told["MKL_NUM_THREADS"] == str(threads)
    assert told["CUDA_VISIBLE_DEVICES"] == os.environ.get("CUDA_VISIBLE_DEVICES")
    assert (told["POSLAB_LIFELINE"], told["cwd"], told["leads"]) == ("stdin", str(tmp_path), True)
    assert cores() == before  # our own variables are unchanged


def test_a_waiting_study_prints_once_for_which_command(tmp_path, monkeypatch):
    monkeypatch.setattr("poslab.study.pool.IDLE_SECONDS", 0.0)
    others = local()
    assert others.start(make_task(tmp_path, STUBBORN, str(tmp_path / "end"), name="first"))
    member, printed = Member.of(plan(request(), tmp_path)), io.StringIO()
    display = StudyDisplay(Console(file=printed), [member])
    waiting = Pool([member], local(), 0, display, Stopper(), {False: [2**60]})
    for _ in range(4):  # asking for their owner frees no cores
        waiting._step()
    assert not others.ended()
    others.kill()
    (line,) = (line for line in printed.getvalue().splitlines() if "the runs are waiting" in line)
    assert f"runs of process {os.getpid()} in {os.getcwd()} use the cores" in line
    assert "TMPDIR" in line
    assert member.state == "waiting"
    assert statuses(others, [make_task(tmp_path, "", name="second")]) == {"first": -9, "second": 0}


@needs_two_cores
def test_two_commands_never_share_a_core(tmp_path):
    launchers = [local(len(cores()), cores_per_run=1) for _ in range(2)]  # each would fill the machine
    names = map(str, range(len(cores()) + 1))
    tasks = [make_task(tmp_path, WHO + STUBBORN, str(tmp_path / "end"), name=name) for name in names]
    room = [launcher.start(task) for launcher, task in zip(itertools.cycle(launchers), tasks)]
    assert room == [True] * len(cores()) + [False]
    until(lambda: all("started" in said(task) for task in tasks[:-1]))
    assert sorted(core for task in tasks[:-1] for core in what_it_said(task)["cores"]) == [*cores()]
    for launcher in launchers:
        launcher.kill()
        statuses(launcher, [])


def test_a_run_of_a_killed_command_is_notified_and_keeps_its_cores(tmp_path):
    end, launcher = tmp_path / "end", local()
    first, task = make_task(tmp_path, STUBBORN, str(end), name="first"), make_task(tmp_path, "", name="next")
    fork = multiprocessing.get_context("fork")
    command = fork.Process(target=statuses, args=(local(), [first]), daemon=True)  # another command
    command.start()
    until(lambda: "started" in said(first))
    assert not launcher.start(task)
    command.kill()
    command.join()
    until(lambda: "closed" in first.log.read_text())
    assert not launcher.start(task)
    end.touch()
    assert statuses(launcher, [task]) == {"next": 0}


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_only_the_leader_is_asked_to_end_and_no_process_remains(how, tmp_path):
    launcher, task = local(), make_task(tmp_path, FAMILY, "leader", FAMILY)
    assert launcher.start(task)
    until(lambda: task.log.read_text().count("\n") == 2)
    _, child = (int(line.split()[1]) for line in sorted(task.log.read_text().splitlines(), reverse=True))
    if how == "kill":
        launcher.kill()
        until(lambda: not command_line(child), 30)  # before anyone polls, and before it ends by itself
    else:
        launcher.stop()
    assert statuses(launcher, []) == {"run": -signal.SIGKILL if how == "kill" else 143}
    until(lambda: not command_line(child), 30)
    assert ("leader asked" in task.log.read_text()) == (how != "kill")
    assert "child asked" not in task.log.read_text()


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (" 3 ,1,3", ("3", "1")),
        ("GPU-8f,MIG-GPU-3a/1/0", ("GPU-8f", "MIG-GPU-3a/1/0")),
        ("1,-1,0", ("1",)),
        ("", ()),
    ],
)
def test_gpus_are_those_visible_to_cuda(monkeypatch, visible, names):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus() == names
    leases = [lease_gpus(1, 1) for _ in names]
    assert [lease.devices for lease in leases if lease] == [(name,) for name in names]
    assert lease_gpus(1, 1) is None


@pytest.mark.parametrize(("visible", "runs_per_gpu", "told"), [("4,7", 1, ["4", "7"]), ("4", 2, ["4", "4"])])
def test_runs_get_the_ids_of_their_gpus(visible, runs_per_gpu, told, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    program, end = WHO + STUBBORN, str(tmp_path / "end")
    launcher = local(runs=3, runs_per_gpu=runs_per_gpu, cores_per_run=1)
    tasks = [make_task(tmp_path, program, end, name=name, cuda=True) for name in "abc"]
    last = make_task(tmp_path, WHO, name="last", cuda=True, devices=len(gpus()))
    assert launcher.start(tasks[0])
    if last.devices == 2:
        assert not launcher.start(last)  # takes none of two either
    assert [launcher.start(task) for task in tasks[1:]] == [True, False]
    until(lambda: all("started" in said(task) for task in tasks[:2]))
    launcher.kill()
    assert statuses(launcher, [last]) == {"a": -9, "b": -9, "last": 0}
    found = [what_it_said(task) for task in (*tasks[:2], last)]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in found] == [*told, visible]
    assert {one["OMP_NUM_THREADS"] for one in found} == {"1"}
    assert all(one["cores"] == list(cores()) for one in found)


def test_gpus_can_be_shared(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    shares = [lease_gpus(1, 2) for _ in range(5)]
    assert [share and share.devices for share in shares] == [("0",), ("1",), ("0",), ("1",), None]
    more = lease_gpus(1, 3)  # another command with three runs per GPU
    assert more is not None
    assert lease_gpus(1, 1) is None  # a command with one run per GPU
    for share in shares:
        if share is not None and share.devices == ("1",):
            share.release()
    alone = lease_gpus(1, 1)
    assert alone.devices == ("1",)
    assert lease_gpus(1, 3) is None
    assert lease_gpus(2, 3) is None


def test_a_folder_that_others_may_write_to_is_refused(tmp_path):
    lease = lease_cores(1)
    lease.release()
    (folder,) = tmp_path.iterdir()
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="TMPDIR"):
        lease_cores(1)
    folder.rename(tmp_path / "other")
    (tmp_path / "other").chmod(0o700)
    folder.symlink_to(tmp_path / "other")
    with pytest.raises(ConfigError, match="TMPDIR"):
        lease_cores(1)


def test_requests_for_more_devices_than_exist_are_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(ConfigError, match="cores_per_run"):
        local(cores_per_run=len(cores()) + 1).start(make_task(tmp_path, "", cuda=True))
    with pytest.raises(ConfigError, match=r"trainer\.devices=3"):
        local().start(make_task(tmp_path, "", cuda=True, devices=3))
