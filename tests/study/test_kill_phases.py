"""Kills in every phase of a study: what it ends with is the same to the bit, and nothing is left behind.

The commands are forked from a process that has imported PyTorch, so that a kill takes seconds. Under -m study
there are 43 rounds. In each, a study is killed once in every phase, in the order in which it comes to them:
301 kills in all.
"""

import random
import re
import shutil
import time
from pathlib import Path

import pytest

from poslab.record.files import UNFINISHED
from support.commands import command, start_forked, tiny
from support.forks import Forked
from support.moments import await_moment
from support.processes import PATIENCE, command_line, descendants, kill
from support.runs import assert_equal_results, without_clock

STUDY = [
    "pos=rope",
    "study=killed",
    "logger=wandb",
    *tiny(
        trainer__max_steps=24,
        trainer__checkpoint_seconds=0,  # after every step
        evaluate__validations=6,
        evaluate__segments=12,
        evaluate__sliding_windows=64,
    ),
]
PHASES = {  # what is awaited in each
    "start": "start of a forked command",
    "training": "step",
    "checkpoint": "checkpoint",
    "run alone": "step",
    "evaluation": "evaluation",
    "finish": "finish",
    "report": "report",
}
ROUNDS = 43


@pytest.fixture(scope="module")
def peace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cwd = tmp_path_factory.mktemp("peace")
    ended = command(*STUDY, cwd=cwd)
    assert ended.returncode == 0, ended.stderr
    return cwd


@pytest.mark.study
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_kill_in_each_phase(number: int, peace: Path, tmp_path: Path) -> None:
    """Where a study ends before it comes to the next phase, another one is begun for what is left."""
    chance = random.Random(number)
    waiting, studies = list(PHASES), 0
    while waiting:
        studies += 1
        war = tmp_path / str(studies)
        war.mkdir()
        while waiting and (killed := _kill_one_command(waiting, war, chance)):
            del waiting[:killed]
        ended = command(*STUDY, cwd=war)
        assert ended.returncode == 0, ended.stderr
        assert "Traceback" not in ended.stderr + (war / "printed.txt").read_text()
        _is_as_in_peace(peace, war)
        shutil.rmtree(war)
    print(f"round {number}: {len(PHASES)} kills of {studies} studies")


def _kill_one_command(phases: list[str], war: Path, chance: random.Random) -> int:
    """Give the command and kill it in the first phase; how many phases were killed in.

    Where a run alone is killed the command has to make it go on, and is killed in the phase after that.
    """
    study = start_forked(*STUDY, cwd=war, output=war / "printed.txt")
    killed = 0
    try:
        for phase in phases:
            if not await_moment(PHASES[phase], war, study, chance):
                return killed
            killed += 1
            below = descendants(study.pid)
            if phase != "run alone":
                kill([study.pid, *chance.choice((below, []))])  # without their command runs end by themselves
                return killed
            kill(below)
        return killed
    finally:
        _end(study)


def _end(study: Forked) -> None:
    """The command is over, and all below it."""
    family = descendants(study.pid)
    kill([study.pid])
    study.wait(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while any(map(command_line, family)):
        assert time.monotonic() < deadline, list(map(command_line, family))
        time.sleep(0.02)


def _is_as_in_peace(peace: Path, war: Path) -> None:
    names = [sorted(path.name for path in (cwd / "runs/killed").glob("[!.]*-seed*")) for cwd in (peace, war)]
    assert names[0] == names[1]
    for name in names[0]:
        assert_equal_results(peace / "runs/killed" / name, war / "runs/killed" / name)
    for table in ("summary", "bits_per_byte_by_length"):
        one, other = ((cwd / "reports/killed" / f"{table}.csv") for cwd in (peace, war))
        assert without_clock(one) == without_clock(other)
    left = [
        path
        for folder in ("runs", "reports")
        for path in (war / folder).rglob(".*")
        if UNFINISHED.fullmatch(path.name) and not re.fullmatch(r"\..*\.lock", path.name)
    ]
    assert left == []
