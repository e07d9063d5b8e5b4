"""The progress that a run reports, and the time left for it and its study."""

import io
import itertools
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from poslab.study.display import run_bar
from poslab.study.display.log import copied_to
from poslab.study.display.progress_file import Progress, read_progress
from poslab.study.display.run_bar import RunDisplay
from poslab.study.display.time_left import seconds_left
from support.display import tell, without_codes


def told(directory: Path) -> Progress:
    progress = read_progress(directory)
    assert progress is not None
    return progress


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Advance the clock between any two readings."""
    now = itertools.count(1000.0, 0.3)
    monkeypatch.setattr(run_bar, "time", SimpleNamespace(monotonic=lambda: next(now), time=time.time))


def test_a_runs_phases_are_reported_with_steps_loss_and_rate(tmp_path):
    display = RunDisplay("rope", tmp_path)
    with display.phase("training", 100):
        assert (told(tmp_path).phase, told(tmp_path).share, told(tmp_path).loss) == ("training", 0.0, None)
        for step in range(1, 101):
            display.step(step, lambda: 2.5, 1000.0)
        ended = told(tmp_path)
    seen = (ended.share, ended.step, ended.steps, ended.loss, ended.tokens_per_second, ended.seconds_left)
    assert seen == (1.0, 100, 100, 2.5, 1000.0, 0.0)
    with display.phase("evaluating"):
        assert (told(tmp_path).phase, told(tmp_path).share, told(tmp_path).step) == ("evaluating", 0.0, None)
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]


def test_a_log_has_ten_lines_per_phase_and_the_loss_is_read_once_a_second(capsys):
    read = []
    display = RunDisplay("rope")
    with display.phase("training", 1000):
        for step in range(1, 1001):
            display.step(step, lambda: read.append(1) or 2.0, 1000.0)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[-1].startswith("rope  step 1000/1000  loss 2.000  1,000 tokens/s")
    assert len(read) < 500  # of 1,000 steps in 400 seconds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_per_phase_which_yields_to_output(tmp_path, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    display, log = RunDisplay("rope"), tmp_path / "run" / "log.txt"
    with copied_to(log, display), display.phase("training", 40):
        for step in range(1, 41):
            display.step(step, lambda: 2.0, 1.0)
            if step == 20:
                print("rotated")
    assert sys.stdout is terminal
    assert log.read_text() == "rotated\n"
    shown = [without_codes(line.split("\x1b[K")[-1]) for line in terminal.getvalue().split("\n")]
    assert shown[0] == "rotated"
    assert shown[1].startswith("rope  training  [################] 100 %  0 s left  step 40/40  loss 2.000")
    assert "[####     " in terminal.getvalue()


def test_a_quiet_display_prints_nothing_and_progress_is_valid_json_for_any_loss(tmp_path, capsys):
    display = RunDisplay("rope", tmp_path, quiet=True)
    with display.phase("training", 1):
        display.step(1, lambda: float("nan"), 1.0)
    assert capsys.readouterr() == ("", "")
    progress = json.loads((tmp_path / "progress.json").read_text())
    assert (progress["share"], progress["loss"]) == (1, None)


def test_the_rate_of_a_resumed_phase_excludes_earlier_steps(tmp_path):
    left = []
    for first in (1, 501):
        display = RunDisplay("rope", tmp_path, quiet=True)
        with display.phase("training", 1000):
            for step in range(first, 601):
                display.step(step, lambda: 2.0, 1.0)
        left.append(told(tmp_path).seconds_left)
    assert told(tmp_path).step > 590
    assert left[1] == pytest.approx(left[0], rel=0.05)  # the same seconds per step


def test_unwritable_progress_stops_no_run_and_that_of_another_version_is_ignored(tmp_path):
    directory = tmp_path / "run"
    directory.write_text("")
    display = RunDisplay("rope", directory, quiet=True)
    with display.phase("training", 1):
        display.step(1, lambda: 2.0, 1.0)
    assert read_progress(directory) is None
    directory.unlink()
    tell(directory)
    assert read_progress(directory) is not None
    (directory / "progress.json").write_text('{"phase": "training", "share": 0.5}')  # fields are missing
    assert read_progress(directory) is None


@pytest.mark.parametrize(
    ("finished", "running", "waiting", "seconds"),
    [
        ([100], [], 5, None),  # no process works on it
        ([], [(10, None)], 3, None),  # no finished run
        ([], [(10, 30)], 1, 70),  # the next takes 40 as well
        ([], [(10, 30), (10, 30)], 2, 70),  # two at once
        ([], [(10, 30), (5, None)], 0, 35),  # the other is assumed to need 40 in total
        ([100, 200], [(0, None)], 3, 600),
        ([100], [(150, None)], 0, 0),  # overdue
        ([100], [(50, 500)], 0, 500),  # it takes longer than the others
        ([100], [(50, 20)], 0, 50),  # its evaluation follows, as in the others
    ],
)
def test_seconds_left_of_a_study(finished, running, waiting, seconds):
    assert seconds_left(finished, running, waiting) == seconds
