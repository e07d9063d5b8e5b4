"""Runs on a real Slurm cluster that are cancelled, stopped, killed, requeued or near their time limit."""

import time
from pathlib import Path

import pytest

from poslab.study.launch.contract import End, Task
from support.slurm import (
    ENDS_ON_SIGTERM,
    TWO_TURNS,
    WRITES_ON_SIGTERM,
    cluster_in,
    job_of,
    slurm,
    started,
    task,
)
from support.tasks import ends, until

pytestmark = pytest.mark.cluster


def test_a_cancelled_run_gets_one_signal_and_may_finish_its_checkpoint(cluster, tmp_path):
    check_cancelling(tmp_path)


@pytest.mark.parametrize("tracking", ["cgroup", "pgid"])
def test_the_same_with_other_process_tracking_of_slurm(tracking, tmp_path, monkeypatch):
    (tmp_path / "cluster").mkdir()
    with cluster_in(tmp_path / "cluster", tracking) as folder:
        monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        check_cancelling(tmp_path)
        check_time_limit(tmp_path)


def check_cancelling(folder: Path) -> None:
    launcher = task(folder, WRITES_ON_SIGTERM, "cancelled")
    slurm_launcher = started(launcher)
    until((folder / "started").exists)
    slurm("scancel", job_of(launcher))
    assert ends(slurm_launcher) == [
        End(launcher, 143, f"Slurm job {job_of(launcher)} was cancelled", restartable=False)
    ]
    assert launcher.log.read_text() == "told 1 times\n"


def test_stop_cancels_waiting_jobs_and_signals_running_ones(cluster, tmp_path):
    cores = int(slurm("sinfo", "--noheader", "--format=%c"))
    running, waiting = task(tmp_path, WRITES_ON_SIGTERM, "running"), task(tmp_path, "", "waiting")
    slurm_launcher = started(running, cores_per_run=cores)
    until((tmp_path / "started").exists)
    assert slurm_launcher.start(waiting)
    slurm_launcher.stop()
    found = {end.task.name: end for end in ends(slurm_launcher, 2)}
    assert found["running"].status == 143
    assert found["waiting"].status is None
    assert all(end.reason == f"Slurm job {job_of(end.task)} was cancelled" for end in found.values())
    assert not any(end.restartable for end in found.values())


def test_kill_does_not_wait(cluster, tmp_path):
    launcher = task(
        tmp_path,
        "import signal, time; signal.signal(15, signal.SIG_IGN); open('started', 'w'); time.sleep(300)",
    )
    slurm_launcher = started(launcher)
    until((tmp_path / "started").exists)
    begun = time.monotonic()
    slurm_launcher.kill()
    (end,) = ends(slurm_launcher)
    assert end.status in (None, -9)
    assert time.monotonic() - begun < 12  # the cluster's KillWait is 15


@pytest.mark.parametrize("devices", [1, 2])
def test_near_its_time_limit_a_run_is_signalled_and_resumes_in_another_job(cluster, tmp_path, devices):
    check_time_limit(tmp_path, devices)


def check_time_limit(folder: Path, devices: int = 1) -> None:
    # Slurm does this 90 seconds before the limit.
    launcher = check_second_turn(folder, "scancel", "--signal=USR2", devices=devices)
    assert launcher.log.read_text() == "second turn\n"


def test_a_requeued_run_is_started_again(cluster, tmp_path):
    launcher = check_second_turn(tmp_path, "scontrol", "requeue")
    assert launcher.log.read_text() == "second turn\n"


def test_a_run_that_fails_when_signalled_is_not_started_again(cluster, tmp_path):
    check_second_turn(tmp_path, "scancel", "--signal=USR2", status=4)


def check_second_turn(folder: Path, *disturbance: str, devices: int = 1, status: int = 143) -> Task:
    """Interrupt a run in its first job; if it ends with 143, as requested, it has a second one."""
    program = ENDS_ON_SIGTERM.replace("143", str(status)) + TWO_TURNS
    launcher = task(folder, program, "long", devices)
    slurm_launcher = started(launcher)
    until(lambda: all((folder / f"started{rank}").exists() for rank in range(devices)))
    job = job_of(launcher)
    slurm(*disturbance, job)
    assert ends(slurm_launcher) == [End(launcher, 0 if status == 143 else status)]
    assert job_of(launcher) == job
    return launcher
