"""Ctrl-C and SIGTERM: the command ends within seconds with the right status, and resumes to the same bits."""

import os
import random
import signal

import pytest

from support.commands import called, start, tiny
from support.moments import await_moment
from support.processes import command_line, descendants
from support.runs import assert_equal_results
from support.tasks import until

ENDS_WITHIN = 5.0  # seconds


def _study(steps: int, logger: str = "wandb") -> list[str]:
    return [
        "study=killed",
        f"logger={logger}",
        *tiny(
            trainer__max_steps=steps,
            trainer__checkpoint_seconds=1000,  # only those written at a stop
            trainer__batch_size=16,
            evaluate__validations=steps // 10,
            evaluate__segments=steps // 20,
            evaluate__sliding_windows=steps // 4,
        ),
    ]


@pytest.mark.parametrize(("stops", "steps"), [(2, 100), pytest.param(20, 800, marks=pytest.mark.study)])
def test_stopped_at_any_moment(stops, steps, tmp_path):
    asked = _study(steps)
    peace, war = tmp_path / "peace", tmp_path / "war"
    for cwd in (peace, war):
        cwd.mkdir()
    called(*_study(steps, "local"), cwd=peace)
    chance = random.Random(stops)
    for index in range(stops):
        number = (signal.SIGINT, signal.SIGTERM)[index % 2]
        with start(*asked, cwd=war, output=war / "printed.txt") as study:
            late = index >= stops - stops // 5
            moment = "evaluation" if late else chance.choice(("training", "training", "start"))
            assert await_moment(moment, war, study, chance), moment
            below = descendants(study.pid)
            if number == signal.SIGINT and index % 4 == 0:
                os.killpg(study.pid, number)  # as sent by a terminal
            else:
                study.send_signal(number)  # as sent by a scheduler
            assert study.wait(ENDS_WITHIN) == 128 + number
        until(lambda: not any(map(command_line, below)), ENDS_WITHIN)  # noqa: B023
    printed = (war / "printed.txt").read_text()
    assert "Traceback" not in printed
    assert ": python train.py study=killed" in printed
    called(*asked, cwd=war)
    (one,), (other,) = (list((cwd / "runs/killed").glob("rope-*")) for cwd in (peace, war))
    assert_equal_results(one, other)


def test_a_second_ctrl_c_ends_at_once(tmp_path):
    with start(*_study(20_000), cwd=tmp_path, output=tmp_path / "printed.txt") as study:
        assert await_moment("training", tmp_path, study, random.Random(0))
        below = descendants(study.pid)
        study.send_signal(signal.SIGINT)
        study.send_signal(signal.SIGINT)
        assert study.wait(ENDS_WITHIN) == 130
    until(lambda: not any(map(command_line, below)), ENDS_WITHIN)
