"""The launcher for Slurm with a real cluster on this machine; see tests/slurm/cluster.sh."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from poslab.config.compose import arms
from poslab.config.schema import ConfigError
from poslab.record.locks import file_lock, run_lock
from poslab.study.display.study_view import StudyDisplay
from poslab.study.launch.contract import End, Task
from poslab.study.pool import Member, Pool
from poslab.study.run import plan as planning
from poslab.study.run.stopping import Stopper
from support.models import CONF
from support.runs import request
from support.slurm import (
    ENDS_ON_SIGTERM,
    WAITS_FOR_A_WORD,
    end_of,
    job_of,
    launcher,
    slurm,
    started,
    state_of,
    task,
)
from support.tasks import ends, until


@pytest.mark.parametrize(
    ("lacking", "advice"), [("sbatch", "launcher=local"), ("submitit", "uv run --extra slurm")]
)
def test_without_slurm_or_submitit_one_line_says_what_to_do(lacking, advice, monkeypatch, tmp_path):
    if lacking == "submitit":
        (tmp_path / "sbatch").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ConfigError, match=advice) as error:
        launcher()
    assert "\n" not in str(error.value)


def test_a_machine_without_a_gpu_submits_runs_for_gpus(monkeypatch, tmp_path):
    pytest.importorskip("submitit", reason="needs submitit: --extra slurm")
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(f'#!/bin/sh\ncat "$1" > {tmp_path}/submitted.sh\necho Submitted batch job 7\n')
    sbatch.chmod(0o755)
    sbatch.with_name("srun").touch(mode=0o755)  # which submitit looks for
    monkeypatch.setenv("PATH", f"{sbatch.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(planning, "cuda_available", lambda: False)
    section = {**arms(CONF / "launcher")["slurm"], "partition": "gpu"}
    asked = request(trainer__accelerator="auto", trainer__precision="auto", launcher=section)
    job = planning.plan(asked, tmp_path / "runs", local=False)
    assert launcher(partition="gpu").start(Member.of(job).task)
    submitted = (tmp_path / "submitted.sh").read_text()
    assert "#SBATCH --gpus-per-node=1\n" in submitted
    assert "#SBATCH --partition=gpu\n" in submitted


def test_a_run_is_running_if_its_process_has_the_lock_and_waits_in_the_queue(monkeypatch, tmp_path):
    (tmp_path / "sbatch").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "submitit", ModuleType("submitit"))
    monkeypatch.setattr("poslab.study.pool.SLOW_POLL_SECONDS", 0)
    monkeypatch.setattr("poslab.study.launch.launchers.slurm.POLL_SECONDS", 0)
    member = Member.of(planning.plan(request(), tmp_path))
    folder = member.task.study / ".launcher"
    folder.mkdir(parents=True)
    (folder / "slurm.json").write_text(json.dumps({member.task.name: "17"}))
    queue = {"17": ("PENDING", member.task.name)}
    monkeypatch.setattr("poslab.study.launch.launchers.slurm._queue", lambda: queue)
    display = StudyDisplay(Console(quiet=True), [member])
    pool = Pool([member], launcher(), 0, display, Stopper(), {})
    pool._step()
    assert member.state == "waiting"
    queue["17"] = ("RUNNING", member.task.name)
    with file_lock(run_lock(member.job.directory)):
        pool._step()
        assert member.state == "running"
    pool._step()
    assert member.state == "running"  # it ends, or returns to the queue


@pytest.mark.cluster
def test_a_run_that_succeeds(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("POSLAB_LIFELINE", "stdin")
    code = """if True:
        import os, sys
        print(os.getcwd(), repr(sys.stdin.read()), os.environ.get("POSLAB_LIFELINE"))
        print(os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"], os.environ["SLURM_CPUS_PER_TASK"])
        print(os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ["MARK"])
        print("an error", file=sys.stderr)"""
    launcher = task(tmp_path, code)
    launcher.log.parent.mkdir(parents=True)
    launcher.log.write_text("before\n")
    slurm_launcher = started(launcher, cores_per_run=2, setup=["export MARK='of setup'"], memory_gb=0.001)
    assert ends(slurm_launcher) == [End(launcher, 0)]
    assert slurm_launcher.ended() == []
    lines = ["before", f"{tmp_path} '' None", "2 2 2", "None of setup", "an error"]
    assert sorted(launcher.log.read_text().splitlines()) == sorted(lines)


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("code", "status"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)]
)
def test_a_run_that_fails(cluster, tmp_path, code, status):
    launcher = task(tmp_path, code)
    assert end_of(launcher) == End(launcher, status)
    assert state_of(launcher) == "FAILED"


@pytest.mark.cluster
def test_gpus_are_requested(cluster, tmp_path):
    launcher = task(tmp_path, "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])", devices=2, cuda=True)
    assert end_of(launcher) == End(launcher, 0)
    assert launcher.log.read_text() == "0,1\n"


@pytest.mark.cluster
def test_each_device_has_a_process_with_a_separate_log(cluster, tmp_path):
    code = "import os; print(*(os.environ['SLURM_' + name] for name in ('NTASKS', 'PROCID', 'LOCALID')))"
    launcher = task(tmp_path, code, devices=2)
    assert end_of(launcher) == End(launcher, 0)
    assert launcher.log.read_text() == "2 0 0\n"
    assert launcher.log.with_name("log.rank1.txt").read_text() == "2 1 1\n"


@pytest.mark.cluster
def test_a_process_that_fails_ends_the_others(cluster, tmp_path):
    code = "import os, time; time.sleep(0 if os.environ['SLURM_PROCID'] == '1' else 300); raise SystemExit(3)"
    assert end_of(task(tmp_path, code, devices=2)).status == 3


@pytest.mark.cluster
def test_a_running_job_is_found_after_its_command_has_ended(cluster, tmp_path):
    code = WAITS_FOR_A_WORD
    section = {**arms(CONF / "launcher")["slurm"], "cores_per_run": 1}
    parent = f"""if True:
        from pathlib import PosixPath
        from poslab.study.launch.contract import Task, launcher_class
        kind, options = launcher_class({section!r})
        assert kind(options, 1).start({task(tmp_path, code)!r})"""
    subprocess.run([sys.executable, "-c", parent], check=True, timeout=120)
    made = task(tmp_path, code)
    job = job_of(made)
    until((tmp_path / "started").exists)
    another = launcher()
    assert another.start(made)
    assert job_of(made) == job
    assert slurm("squeue", "--noheader", "--format=%i") == job
    (tmp_path / "go").touch()
    assert ends(another) == [End(made, 5)]
    # It has ended: a new request starts it again.
    assert another.start(made)
    assert job_of(made) != job
    assert ends(another) == [End(made, 5)]


@pytest.mark.cluster
def test_a_waiting_job_is_found_after_its_command_has_ended(cluster, tmp_path):
    cores = int(slurm("sinfo", "--noheader", "--format=%c"))
    first = launcher(cores_per_run=cores)
    running = task(tmp_path, ENDS_ON_SIGTERM + "time.sleep(300)", "running")
    waiting = task(tmp_path, "print('ran')", "waiting")
    assert first.start(running)
    assert first.start(waiting)
    assert state_of(waiting) == "PENDING"
    another = launcher(cores_per_run=cores)
    assert another.start(waiting)
    assert len(slurm("squeue", "--noheader", "--format=%i").split()) == 2
    until(lambda: state_of(running) == "RUNNING")
    slurm("scancel", job_of(running))
    assert ends(another) == [End(waiting, 0)]
    assert waiting.log.read_text() == "ran\n"


@pytest.mark.cluster
def test_two_commands_submit_a_run_once(cluster, tmp_path):
    made = task(tmp_path, ENDS_ON_SIGTERM + "time.sleep(300)")

    def command() -> None:
        mine = launcher()
        until(lambda: mine.start(made))

    with ThreadPoolExecutor(4) as pool:
        for started in [pool.submit(command) for _ in range(4)]:
            started.result()
    assert slurm("squeue", "--noheader", "--format=%i").split() == [job_of(made)]


@pytest.mark.cluster
def test_an_absent_controller_ends_nothing(cluster, tmp_path):
    made = task(tmp_path, WAITS_FOR_A_WORD)
    slurm_launcher = started(made)
    until((tmp_path / "started").exists)
    controller = int((cluster / "slurmctld.pid").read_text())
    os.kill(controller, signal.SIGTERM)
    until(lambda: not Path(f"/proc/{controller}").exists())
    try:
        assert slurm_launcher.ended() == []
        assert not launcher().start(made)
        assert not launcher().start(task(tmp_path, "", "new"))
    finally:
        subprocess.run(["slurmctld"], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    (tmp_path / "go").touch()
    assert ends(slurm_launcher) == [End(made, 5)]


@pytest.mark.cluster
def test_a_refused_run_gives_the_reason_in_one_line(cluster, tmp_path, capsys):
    with pytest.raises(ConfigError, match="invalid partition") as error:
        launcher(partition="nowhere").start(task(tmp_path, ""))
    assert "\n" not in str(error.value)
    assert capsys.readouterr() == ("", "")
    assert list((tmp_path / "study" / ".launcher" / "slurm").iterdir()) == []


@pytest.mark.cluster
def test_a_process_does_not_outlive_its_job(cluster, tmp_path):
    code = """if True:
        import os, time
        with open("process", "w") as file:
            file.write(str(os.getpid()))
        os.kill(os.getppid(), 9)
        time.sleep(300)"""
    launcher = task(tmp_path, code)
    end = end_of(launcher)
    assert end.status is None
    assert end.restartable
    assert end.reason.startswith(f"Slurm job {job_of(launcher)} failed; see ")
    process = (tmp_path / "process").read_text()
    until(lambda: not Path(f"/proc/{process}").exists())


@pytest.mark.cluster
def test_a_program_that_cannot_be_started_says_where_to_look(cluster, tmp_path):
    launcher = task(tmp_path / "nowhere", "")
    end = end_of(Task(**{**vars(launcher), "study": tmp_path, "log": tmp_path / "log.txt"}))
    assert end.status is None
    assert "nowhere" in Path(end.reason.split("see ")[1]).read_text()
