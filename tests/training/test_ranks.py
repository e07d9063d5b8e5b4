"""One run on several processes: the same curve as on one, and the same bits when it goes on."""

import random
import re
from pathlib import Path
from shutil import copytree

import pytest

from poslab.record.manifest import read_manifest
from poslab.study.display.run_bar import RunDisplay
from poslab.study.run.make import RunMaker
from poslab.study.run.plan import plan
from poslab.study.run.stopping import Stopper
from poslab.training.observer import DivergedError
from support.commands import called, command, rows, start, tiny
from support.moments import await_moment
from support.processes import kill
from support.runs import assert_equal_results, request

SETTINGS = tiny(
    study="killed",
    logger="local",
    trainer__max_steps=60,
    trainer__batch_size=16,
    trainer__checkpoint_seconds=0,
    evaluate__validations=20,
)


SHARED = {
    "ddp": ["trainer.devices=2"],
    "fsdp": ["trainer.devices=2", "trainer.strategy=fsdp"],
}


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """The run on one process."""
    return made(tmp_path_factory.mktemp("single"))


@pytest.fixture(scope="module", params=SHARED)
def shared(request, tmp_path_factory):
    """The strategy of a run on several processes, and the run."""
    return request.param, made(tmp_path_factory.mktemp(request.param), *SHARED[request.param])


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


def test_several_processes_train_the_same_curve(single, shared):
    _, several = shared
    assert losses(several) == [pytest.approx(row, rel=2e-5) for row in losses(single)]
    assert [row["tokens"] for row in rows(several / "metrics.csv")] == [
        row["tokens"] for row in rows(single / "metrics.csv")
    ]
    assert read_manifest(several).status == "done"
    assert read_manifest(several).kernel == read_manifest(single).kernel
    assert several.name == single.name


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of a run that was stopped at a step, by its strategy."""
    return {name: stopped_at_a_step(tmp_path_factory.mktemp(name), *more) for name, more in SHARED.items()}


def stopped_at_a_step(cwd, *settings):
    study = start(*SETTINGS, *settings, cwd=cwd, output=cwd / "printed.txt")
    try:
        assert await_moment("step", cwd, study, random.Random(1))
        study.terminate()
        assert study.wait(5) == 143
    finally:
        study.kill()
        study.wait()
    return cwd


def test_several_processes_that_were_stopped_go_on_to_the_same_bits(shared, stopped, tmp_path):
    strategy, whole = shared
    again = made(copytree(stopped[strategy], tmp_path / "again"), *SHARED[strategy])
    assert_equal_results(whole, again)
    assert read_manifest(again).processes == 2


@pytest.mark.parametrize(("before", "after"), [("fsdp", "ddp"), ("ddp", "fsdp")])
def test_a_run_goes_on_on_other_devices_and_says_so(before, after, single, stopped, tmp_path):
    again = made(copytree(stopped[before], tmp_path / "again"), *SHARED[after])
    assert losses(again) == [pytest.approx(row, rel=2e-5) for row in losses(single)]
    assert read_manifest(again).processes == 2
    (note,) = read_manifest(again).notes
    assert f"strategy={after} after {before}" in note


@pytest.mark.parametrize("shared", ["ddp"], indirect=True)
def test_a_process_that_is_killed_costs_what_was_not_kept(shared, tmp_path):
    """One of the others, which keeps no record: the run goes on from its last checkpoint, and says so."""
    strategy, whole = shared
    study = start(*SETTINGS, *SHARED[strategy], cwd=tmp_path, output=tmp_path / "printed.txt")
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
    assert_equal_results(whole, directory)
    assert read_manifest(directory).processes == 2


def test_where_all_processes_diverge_only_the_first_says_so(tmp_path, monkeypatch):
    """An error in another would end the first one, with its record at status failed."""

    def diverges(*arguments):
        raise DivergedError("the loss is not finite")

    monkeypatch.setattr(RunMaker, "_train", diverges)
    RunMaker(plan(request(), tmp_path), RunDisplay("made", quiet=True), Stopper()).share()
    assert not list(tmp_path.rglob("manifest.json"))


OF_TEXT = {
    "evaluate__rescale": "[none,ntk,drop]",
    "evaluate__recalibration_steps": 2,
    "evaluate__needles": 4,
    "probe": "retrieval",
    "context_length": 128,
}


@pytest.mark.parametrize("asked", [OF_TEXT, {"task": "copy", "data": "none"}], ids=["text", "task"])
def test_several_processes_measure_what_one_does(asked, tmp_path):
    """To the last digit: each batch is computed by one of them."""
    settings = tiny(study="killed", logger="local", evaluate__longest=4, trainer__devices=2, **asked)
    settings = [text for text in settings if asked is OF_TEXT or not text.startswith("data.")]
    ended = command(*settings, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    (directory,) = tmp_path.glob("runs/killed/[!.]*-seed*")
    alone = called("evaluate", f"checkpoint={directory}", cwd=tmp_path, script="poslab")
    assert alone.returncode == 0, alone.stderr
    (said,) = (line for line in alone.stdout.splitlines() if "the same numbers" in line)
    # Training on without the rotation adds in another order.
    assert set(re.findall(r"\w+\.csv", said)) <= {"rescaled.csv", "rescaled_position.csv"}


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
