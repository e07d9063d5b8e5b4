"""Six runs on Ray and on Slurm, one of them interrupted: complete, and equal to the local launcher's."""

import importlib.util
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from poslab.record.manifest import read_manifest
from support.commands import command, start, tiny
from support.runs import assert_equal_results
from support.slurm import slurm
from support.tasks import until

pytestmark = pytest.mark.cluster

STUDY = [
    "-m",
    "pos=rope,alibi,none",
    "seed=0,1",
    "study=killed",
    *tiny(
        logger="local",
        trainer__max_steps=1500,
        trainer__checkpoint_seconds=0.5,
        evaluate__validations=20,
        launcher__cores_per_run=1,
    ),
]
PATIENCE = 240  # seconds


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The study on the local launcher."""
    cwd = tmp_path_factory.mktemp("local")
    command(*STUDY, "launcher=local", cwd=cwd)
    return cwd


def trained_equal(one: Path, other: Path) -> None:
    names = sorted(path.name for path in (one / "runs" / "killed").glob("[!.]*-seed*"))
    assert len(names) == 6
    for name in names:
        assert_equal_results(one / "runs" / "killed" / name, other / "runs" / "killed" / name)


def is_training(cwd: Path) -> bool:
    """Return whether a run is training and has a checkpoint."""
    return any(cwd.glob("runs/killed/*/checkpoints/*.pt"))


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray: --extra ray")
def test_ray_with_a_worker_killed(local, tmp_path):
    output = tmp_path / "printed.txt"
    temporary = tempfile.mkdtemp(prefix="ray")  # a short path, since Ray's sockets are in it
    with start(*STUDY, "launcher=ray", cwd=tmp_path, output=output, temporary=temporary) as study:
        until(lambda: is_training(tmp_path), PATIENCE, study)
        os.kill(_busy_workers(tmp_path)[0], signal.SIGKILL)
        assert study.wait(PATIENCE) == 0, output.read_text()
    shutil.rmtree(temporary, ignore_errors=True)
    assert "its Ray worker was killed; it resumes from its last checkpoint" in output.read_text()
    trained_equal(local, tmp_path)
    assert max(_processes(tmp_path)) == 2


def _busy_workers(cwd: Path) -> list[int]:
    """Return Ray's processes that have runs as children."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
            status = path.with_name("stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"poslab.study.run.worker" in words and str(cwd).encode() in words:
            found.append(int(status.rpartition(")")[2].split()[1]))
    return found


def _processes(cwd: Path) -> list[int]:
    return [
        read_manifest(path.parent).processes for path in (cwd / "runs" / "killed").glob("[!.]*/manifest.json")
    ]


def running_jobs() -> list[str]:
    return slurm("squeue", "--noheader", "--states=RUNNING", "--format=%A").split()


def test_slurm_with_a_job_requeued_and_the_parent_gone(local, cluster, tmp_path):
    output = tmp_path / "printed.txt"
    with start(*STUDY, "launcher=slurm", cwd=tmp_path, output=output) as study:
        until(lambda: is_training(tmp_path) and running_jobs(), PATIENCE, study)
        slurm("scontrol", "requeue", running_jobs()[0])
        study.send_signal(signal.SIGINT)  # the parent ends, the jobs do not
        assert study.wait(10) == 130
        assert "continue without this command" in output.read_text()
        assert slurm("squeue", "--noheader")
    with start(*STUDY, "launcher=slurm", cwd=tmp_path, output=output) as study:
        assert study.wait(PATIENCE) == 0, output.read_text()
    trained_equal(local, tmp_path)
    assert sum(_processes(tmp_path)) == 7  # the requeued one had two
