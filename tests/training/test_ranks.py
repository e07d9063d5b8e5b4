"""One run on several processes: the same curve as on one, and the same bits when it goes on."""

import random
from pathlib import Path

import pytest

from poslab.record.manifest import read_manifest
from support.commands import command, rows, start, tiny
from support.moments import await_moment
from support.processes import kill
from support.runs import assert_equal_results

SETTINGS = tiny(
    study="killed",
    logger="local",
    trainer__max_steps=120,
    trainer__batch_size=16,
    trainer__checkpoint_seconds=0,
    evaluate__validations=40,
)


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """The run on one process."""
    return made(tmp_path_factory.mktemp("single"))


@pytest.fixture(scope="module")
def double(tmp_path_factory):
    """The run on two processes."""
    return made(tmp_path_factory.mktemp("double"), "trainer.devices=2")


def made(cwd, *more):
    ended = command(*SETTINGS, *more, cwd=cwd)
    assert ended.returncode == 0, ended.stderr
    (directory,) = cwd.glob("runs/killed/[!.]*-seed*")
    return directory


def losses(directory):
    return [
        [float(row[f"{part}_nll"]) / float(row[f"{part}_tokens"]) for part in ("train", "validation")]
        for row in rows(directory / "metrics.csv")
    ]


def test_two_processes_train_the_same_curve(single, double):
    assert losses(double) == [pytest.approx(row, rel=2e-5) for row in losses(single)]
    assert [row["tokens"] for row in rows(double / "metrics.csv")] == [
        row["tokens"] for row in rows(single / "metrics.csv")
    ]
    assert read_manifest(double).status == "done"


def test_two_processes_that_were_stopped_go_on_to_the_same_bits(double, tmp_path):
    study = start(*SETTINGS, "trainer.devices=2", cwd=tmp_path, output=tmp_path / "printed.txt")
    try:
        assert await_moment("step", tmp_path, study, random.Random(1))
        study.terminate()
        assert study.wait(5) == 143
    finally:
        study.kill()
        study.wait()
    again = made(tmp_path, "trainer.devices=2")
    assert_equal_results(double, again)
    assert read_manifest(again).processes == 2


def test_a_process_that_is_killed_costs_what_was_not_kept(double, tmp_path):
    """One of the two, which keeps no record: the run goes on from its last checkpoint, and says so."""
    study = start(*SETTINGS, "trainer.devices=2", cwd=tmp_path, output=tmp_path / "printed.txt")
    try:
        assert await_moment("step", tmp_path, study, random.Random(1))
        (leader,) = _children(study.pid)
        kill(_children(leader)[-1:])
        assert study.wait(120) == 0
    finally:
        study.kill()
        study.wait()
    printed = (tmp_path / "printed.txt").read_text()
    assert "one of its processes was killed" in printed
    assert "it resumes" in printed
    (directory,) = tmp_path.glob("runs/killed/[!.]*-seed*")
    assert_equal_results(double, directory)
    assert read_manifest(directory).processes == 2


def _children(process):
    """The Python processes that a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            words = path.with_name("cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == process and b"poslab.study.run.worker" in words:
            found.append(int(path.parent.name))
    return sorted(found)


def test_a_batch_that_does_not_divide_is_refused(tmp_path):
    ended = command(*tiny(trainer__devices=3), cwd=tmp_path)
    assert ended.returncode == 2
    assert "batch_size=4 is not a multiple of devices=3" in ended.stderr


def test_several_machines_need_a_cluster(tmp_path):
    ended = command(*tiny(trainer__nodes=2), cwd=tmp_path)
    assert ended.returncode == 2
    assert "launcher=slurm for several nodes" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
