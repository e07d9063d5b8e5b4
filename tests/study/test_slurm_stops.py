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


def test_a_cancelled_run_is_told_once_and_may_finish_its_checkpoint(cluster, tmp_path):
    check_cancelling(tmp_path)


@pytest.mark.parametrize("tracking", ["cgroup", "pgid"])
def test_the_same_where_slurm_finds_processes_otherwise(tracking, tmp_path, monkeypatch):
    (tmp_path / "cluster").mkdir()
    with cluster_in(tmp_path / "cluster", tracking) as folder:
        monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        check_cancelling(tmp_path)
        check_time_limit(tmp_path)


def check_cancelling(folder: Path) -> None:
    made = task(folder, WRITES_ON_SIGTERM, "cancelled")
    slurm_launcher = started(made)
    until((folder / "started").exists)
    slurm("scancel", job_of(made))
    assert ends(slurm_launcher) == [
        End(made, 143, f"Slurm job {job_of(made)} was cancelled", restartable=False)
    ]
    assert made.log.read_text() == "told 1 times\n"


def test_stop_cancels_what_waits_and_tells_what_runs(cluster, tmp_path):
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
    made = task(
        tmp_path,
        "import signal, time; signal.signal(15, signal.SIG_IGN); open('started', 'w'); time.sleep(300)",
    )
    slurm_launcher = started(made)
    until((tmp_path / "started").exists)
    begun = time.monotonic()
    slurm_launcher.kill()
    (end,) = ends(slurm_launcher)
    assert end.status in (None, -9)
    assert time.monotonic() - begun < 12  # the cluster's KillWait is 15


@pytest.mark.parametrize("devices", [1, 2])
def test_near_its_time_limit_a_run_is_told_and_goes_on_in_another_turn(cluster, tmp_path, devices):
    check_time_limit(tmp_path, devices)


def check_time_limit(folder: Path, devices: int = 1) -> None:
    # What Slurm itself does 90 seconds before the limit.
    made = check_second_turn(folder, "scancel", "--signal=USR2", devices=devices)
    assert made.log.read_text() == "second turn\n"


def test_a_requeued_run_is_made_again(cluster, tmp_path):
    made = check_second_turn(tmp_path, "scontrol", "requeue")
    assert made.log.read_text() == "second turn\n"


def test_a_run_that_fails_when_it_is_told_is_not_made_again(cluster, tmp_path):
    check_second_turn(tmp_path, "scancel", "--signal=USR2", status=4)


def check_second_turn(folder: Path, *disturbance: str, devices: int = 1, status: int = 143) -> Task:
    """Disturb a run in its first turn; one that then ends with 143, as asked, has a second."""
    program = ENDS_ON_SIGTERM.replace("143", str(status)) + TWO_TURNS
    made = task(folder, program, "long", devices)
    slurm_launcher = started(made)
    until(lambda: all((folder / f"started{rank}").exists() for rank in range(devices)))
    job = job_of(made)
    slurm(*disturbance, job)
    assert ends(slurm_launcher) == [End(made, 0 if status == 143 else status)]
    assert job_of(made) == job
    return made
