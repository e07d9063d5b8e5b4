"""A run on several processes: the same curve as on one, and the same bits after it is resumed."""

import os
import random
import re
import socket
from contextlib import contextmanager
from shutil import copytree
from unittest.mock import patch

import pytest

import poslab
from poslab.record.manifest import read_manifest
from poslab.study.display.run_bar import RunDisplay
from poslab.study.launch.machine import cores
from poslab.study.run.execute import RunExecutor
from poslab.study.run.plan import plan
from poslab.study.run.stopping import Stopper
from poslab.study.run.worker import WORKER, request_file, request_text
from poslab.training.observer import DivergedError
from support.commands import called, environment, read, start, tiny
from support.forks import Forked
from support.moments import await_moment
from support.processes import command_line, descendants, kill
from support.runs import assert_equal_results, request
from support.tasks import until

RUN = {"study": "killed", "logger": "local", "evaluate__longest": 2}
# With all measurements of a text; each batch is computed by one of the processes.
OF_TEXT = [
    *tiny(**RUN, context_length=128, evaluate__recalibration_steps=2, evaluate__needles=4),
    "evaluate.rescale=[none,ntk,drop]",
    "probe=retrieval",
    "probe.samples=4",
    "probe.depths=2",
]
ONLY_OF_TEXT = "evaluate.longest", "evaluate.segments", "evaluate.sliding_windows"
STEPS = {"trainer__max_steps": 24, "trainer__batch_size": 16, "trainer__checkpoint_seconds": 0}
OF_A_TASK = [
    *(text for text in tiny(**RUN, **STEPS) if not text.startswith(("data", *ONLY_OF_TEXT))),
    "task=copy",
    "data=none",
    "objective.samples=50",
]
DDP, FSDP = ["trainer.devices=2"], ["trainer.devices=2", "trainer.strategy=fsdp"]
SHARED = {"ddp": [*OF_TEXT, *DDP], "fsdp": [*OF_A_TASK, *FSDP]}


@pytest.fixture(scope="module", params=SHARED)
def strategy(request):
    return request.param


@pytest.fixture(scope="module")
def single(strategy, tmp_path_factory):
    """The run on one process."""
    cwd = tmp_path_factory.mktemp("single")
    return only_run(cwd, *(text for text in SHARED[strategy] if text not in FSDP))


@pytest.fixture(scope="module")
def shared(strategy, tmp_path_factory):
    """The run on several processes."""
    return made_by_two(tmp_path_factory.mktemp(strategy), *SHARED[strategy])


@contextmanager
def two_processes(cwd, *settings):
    """Yield the processes of a run, as a launcher that starts all would start them, and its folder."""
    with patch.dict(os.environ, environment(cwd), clear=True), socket.create_server(("", 0)) as free:
        job = plan(poslab.compose(*settings), cwd / "runs")
        place = {"NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    file = request_file(job.directory)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(request_text(job))
    threads = max(1, len(cores()) // 2)  # as many as the command starts
    variables = {**environment(cwd), **place, "OMP_NUM_THREADS": str(threads)}
    with (cwd / "printed.txt").open("ab") as log:
        processes = [
            Forked([*WORKER[1:], str(file)], cwd, {**variables, "LOCAL_RANK": number}, log, log)
            for number in ("0", "1")
        ]
    try:
        yield processes, job.directory
    finally:
        for process in processes:
            process.kill()
            process.wait()


def made_by_two(cwd, *settings):
    with two_processes(cwd, *settings) as (processes, directory):
        ended = [process.wait(300) for process in processes]
    assert ended == [0, 0], (cwd / "printed.txt").read_text()
    return directory


def only_run(cwd, *settings):
    called(*settings, cwd=cwd)
    (directory,) = cwd.glob("runs/killed/[!.]*-seed*")
    return directory


def losses(directory):
    return [
        [float(row[f"{part}_nll"]) / float(row[f"{part}_tokens"]) for part in ("train", "validation")]
        for row in read(directory / "metrics.csv")
    ]


def assert_same_curve(single, several):
    assert losses(several) == [pytest.approx(row, rel=2e-5) for row in losses(single)]
    assert [read_manifest(each).status for each in (single, several)] == ["done", "done"]


def test_several_processes_train_the_same_curve(single, shared):
    assert_same_curve(single, shared)
    assert [row["tokens"] for row in read(shared / "metrics.csv")] == [
        row["tokens"] for row in read(single / "metrics.csv")
    ]
    assert read_manifest(shared).kernel == read_manifest(single).kernel
    assert shared.name == single.name


def test_several_processes_measure_the_same_as_one(shared, tmp_path):
    """To the last digit; except that training without the rotation sums in another order."""
    alone = called("evaluate", f"checkpoint={shared}", cwd=tmp_path, script="poslab")
    (said,) = (line for line in alone.stdout.splitlines() if "the same numbers" in line)
    assert set(re.findall(r"\w+\.csv", said)) <= {"rescaled.csv", "rescaled_position.csv"}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of a sharded run that lost a process, was resumed, and then stopped.

    The lost process is not the first, so it writes no record.
    """
    cwd, chance = tmp_path_factory.mktemp("stopped"), random.Random(7)
    printed = cwd / "printed.txt"
    with start(*SHARED["fsdp"], cwd=cwd, output=printed) as study:
        assert await_moment("step", cwd, study, chance)
        first, *others = workers(study.pid)
        kill(others[-1:])
        until(lambda: set(workers(study.pid)) - {first, *others}, command=study)
        study.terminate()  # the command, which stops the run's processes
        assert study.wait(5) == 143
    assert "one of its processes was killed" in printed.read_text()
    with two_processes(cwd, *SHARED["fsdp"]) as ((first, _), _):
        assert await_moment("step", cwd, first, chance)
        first.terminate()
        assert first.wait(60) == 143
    return cwd


def workers(command):
    return [each for each in descendants(command) if WORKER[-1] in command_line(each)]


@pytest.mark.parametrize("strategy", ["fsdp"], indirect=True)
def test_killed_and_stopped_processes_resume_to_the_same_bits(shared, stopped, tmp_path):
    directory = made_by_two(copytree(stopped, tmp_path / "again"), *SHARED["fsdp"])
    assert_equal_results(shared, directory)
    assert read_manifest(directory).processes == 3


@pytest.mark.parametrize("strategy", ["fsdp"], indirect=True)
def test_a_run_resumes_on_other_devices(single, stopped, tmp_path):
    cwd = copytree(stopped, tmp_path / "again")
    directory = only_run(cwd, *OF_A_TASK)
    assert_same_curve(single, directory)


def test_if_all_processes_diverge_only_the_first_reports_it(tmp_path, monkeypatch):
    """An error in another process would end the first one, with the status failed in its record."""

    def diverges(*arguments):
        raise DivergedError("the loss is not finite")

    monkeypatch.setattr(RunExecutor, "_train", diverges)
    RunExecutor(plan(request(), tmp_path), RunDisplay("made", quiet=True), Stopper()).share()
    assert not list(tmp_path.rglob("manifest.json"))
