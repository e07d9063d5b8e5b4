"""What a run tells of itself, and how long it and its study still take."""

import io
import itertools
import json
import os
import sys

import pytest
from rich.console import Console

from poslab.record.seal import sealed
from poslab.study.display import run_bar
from poslab.study.display.progress_file import Progress, ProgressFile, read_progress
from poslab.study.display.run_bar import RunDisplay
from poslab.study.display.time_left import Course, Pace, seconds_left
from support.display import TOLD, log, printed

# What a run tells


def test_a_runs_phases_are_told_with_steps_loss_and_rate(tmp_path):
    display = RunDisplay("rope", log(), ProgressFile(tmp_path))
    with display.phase("training", 100):
        begun = read_progress(tmp_path)
        display.step(100, lambda: 2.5, 1000.0)
        stepped = read_progress(tmp_path)
    ended = read_progress(tmp_path)
    assert begun is not None
    assert (begun.phase, begun.share, begun.loss, begun.process) == ("training", 0.0, None, os.getpid())
    assert stepped is not None
    assert ended is not None
    told = (ended.share, ended.step, ended.steps, ended.loss, ended.tokens_per_second)
    assert told == (1.0, 100, 100, 2.5, 1000.0)
    assert ended.phase_started == begun.phase_started <= stepped.updated <= ended.updated
    with display.phase("evaluating"):
        evaluating = read_progress(tmp_path)
    assert evaluating is not None
    assert (evaluating.phase, evaluating.share, evaluating.step, evaluating.loss) == (
        "evaluating",
        0.0,
        None,
        None,
    )
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]


def test_the_loss_is_read_ten_times_a_phase_in_a_log_and_the_file_changes_nothing(tmp_path, monkeypatch):
    read = []
    clock = itertools.count(1000.0, 0.5)  # the time at each look at it
    monkeypatch.setattr(run_bar.time, "monotonic", lambda: next(clock))

    def loss() -> float:
        read.append(1)
        return 2.0

    for progress in (None, ProgressFile(tmp_path)):
        console = log()
        display = RunDisplay("rope", console, progress)
        with display.phase("training", 1000):
            for step in range(1, 1001):
                display.step(step, loss, 1000.0)
        assert len(printed(console).splitlines()) == 10
    assert len(read) >= 20  # and for the file, at most once a second


def test_a_short_phase_prints_its_end_only(tmp_path, monkeypatch):
    monkeypatch.setattr(run_bar.time, "monotonic", lambda: 1000.0)
    console = log()
    display = RunDisplay("rope", console)
    with display.phase("training", 100):
        for step in range(1, 101):
            display.step(step, lambda: 2.0, 1000.0)
    assert "step 100/100" in printed(console)
    assert len(printed(console).splitlines()) == 1


def test_a_quiet_console_prints_nothing_and_the_progress_is_told(tmp_path):
    console = Console(file=io.StringIO(), force_terminal=True, quiet=True)
    display = RunDisplay("rope", console, ProgressFile(tmp_path))
    standard_error = sys.stderr
    with display.phase("training", 1):
        assert sys.stderr is standard_error
        display.step(1, lambda: 2.0, 1.0)
    assert printed(console) == ""
    assert read_progress(tmp_path).share == 1


def test_a_phase_that_breaks_off_is_not_told_as_done(tmp_path):
    display = RunDisplay("rope", log(), ProgressFile(tmp_path))
    with pytest.raises(KeyboardInterrupt), display.phase("training", 10):
        raise KeyboardInterrupt
    assert read_progress(tmp_path).share == 0


def test_a_phase_that_goes_on_from_a_checkpoint_says_from_where(tmp_path):
    console = log()
    display = RunDisplay("rope", console, ProgressFile(tmp_path))
    with display.phase("training", 1000):
        for step in (501, 1000):
            display.step(step, lambda: 2.0, 1.0)
    assert read_progress(tmp_path).share_before == 0.5
    assert "step 1000/1000" in printed(console)


def test_a_loss_that_is_no_number_is_valid_json(tmp_path):
    file = ProgressFile(tmp_path)
    file.begin("training")
    file.write(0.5, 1, 2, float("nan"), 3.0)
    assert json.loads((tmp_path / "progress.json").read_text())["loss"] is None
    assert read_progress(tmp_path).share == 0.5


@pytest.mark.parametrize("obstacle", ["no folder", "a file in its place", "a folder in its place"])
def test_progress_that_cannot_be_written_costs_no_run(obstacle, tmp_path):
    directory = tmp_path / "run"
    if obstacle == "a file in its place":
        directory.write_text("")
    elif obstacle == "a folder in its place":
        (directory / ".progress.json").mkdir(parents=True)
    display = RunDisplay("rope", log(), ProgressFile(directory))
    with display.phase("training", 1):
        display.step(1, lambda: 2.0, 1.0)
    assert read_progress(directory) is None


DAMAGED = {
    "empty": b"",
    "cut off": sealed(TOLD).encode()[:40],
    "a wrong bit": sealed(TOLD).replace("0.45", "0.44").encode(),
    "of another run": sealed({"run": "another", **TOLD}).encode(),
    "not sealed": json.dumps(TOLD).encode(),
    "no object": b"[1, 2]",
    "no text": b"\xff\xfe\x00",
    "nested too deep": b"[" * 100_000,
    "a field is missing": sealed({"run": "run", "phase": "training", "share": 0.5}).encode(),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_progress_is_none(case, tmp_path):
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "progress.json").write_text(sealed({"run": "run", **TOLD}))
    assert read_progress(directory) is not None
    (directory / "progress.json").write_bytes(DAMAGED[case])
    assert read_progress(directory) is None


def test_missing_progress_is_none(tmp_path):
    assert read_progress(tmp_path / "nowhere") is None


# How long it still takes


def progress(**changes: object) -> Progress:
    return Progress(**{**TOLD, **changes})


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({}, 55),  # 45 % in 45 s
        ({"share": 0.0}, None),
        ({"share": 0.01}, None),  # no basis yet
        ({"share": 1.0}, 0),
        ({"share_before": 0.35}, 247.5),  # went on from 35 %: 10 % in 45 s
        ({"share_before": 0.45}, None),
    ],
)
def test_seconds_left_of_a_phase(changes, seconds):
    assert progress(**changes).seconds_left == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("finished", "running", "waiting", "seconds"),
    [
        ([], [], 0, None),
        ([100], [], 5, None),  # nobody works on it
        ([], [Course(10, None)], 3, None),  # no basis
        ([], [Course(10, 30)], 0, 30),
        ([], [Course(10, 30)], 1, 70),  # the next takes 40 as well
        ([], [Course(10, 30), Course(10, 30)], 2, 70),  # two at once
        ([], [Course(10, 30), Course(5, None)], 0, 35),  # the other is taken to need 40 in all
        ([100], [Course(20, None)], 0, 80),
        ([100, 200], [Course(0, None)], 3, 600),
        ([100], [Course(150, None)], 0, 0),  # overdue
        ([100], [Course(90, 10), Course(10, 90)], 1, 110),  # the first free place is taken
        ([100], [Course(50, 500)], 0, 500),  # what a run says of itself goes before the mean
    ],
)
def test_seconds_left_of_a_study(finished, running, waiting, seconds):
    assert seconds_left(finished, running, waiting) == seconds


def test_a_training_run_is_expected_to_be_evaluated_like_the_finished_ones():
    pace = Pace()
    assert pace.course(50, progress()).left == pytest.approx(55)
    pace.finish(120, {"training": 1100.0}, updated=1115.0)
    assert pace.course(50, progress()).left == pytest.approx(70)
    assert pace.course(50, progress(phase="evaluating")).left == pytest.approx(55)
    assert pace.course(50, None) == Course(50, None)
