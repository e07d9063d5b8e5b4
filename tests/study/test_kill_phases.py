"""Kills in every phase of a study: what it ends with is the same to the bit, and nothing is left behind.

The commands are forked from a process that has imported PyTorch, so that a kill takes seconds. Thirty of each
phase under -m study; in every run one of each that test_kill.py does not come to.
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
PHASES = {
    "start": "start",
    "training": "step",
    "checkpoint": "checkpoint",
    "evaluation": "evaluation",
    "finish": "finish",
    "report": "report",
    "run alone": "step",
}


@pytest.fixture(scope="module")
def peace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cwd = tmp_path_factory.mktemp("peace")
    ended = command(*STUDY, cwd=cwd)
    assert ended.returncode == 0, ended.stderr
    return cwd


@pytest.mark.study
def test_a_kill_in_each_late_phase(peace: Path, tmp_path: Path) -> None:
    survives(["evaluation", "finish"], peace, tmp_path)


@pytest.mark.study
@pytest.mark.parametrize("phase", PHASES)
def test_thirty_kills(phase: str, peace: Path, tmp_path: Path) -> None:
    survives([phase] * 30, peace, tmp_path)


def survives(phases: list[str], peace: Path, folder: Path) -> None:
    """Kill a study in the phases, one after the other; where it ends before, another one is begun."""
    chance = random.Random(len(phases))
    waiting, studies, killed = list(phases), 0, 0
    while waiting:
        studies += 1
        war = folder / str(studies)
        war.mkdir()
        while waiting and _killed_in(waiting[0], war, chance):
            killed += 1
            waiting.pop(0)
        ended = command(*STUDY, cwd=war)
        assert ended.returncode == 0, ended.stderr
        assert "Traceback" not in ended.stderr + (war / "printed.txt").read_text()
        _is_as_in_peace(peace, war)
        shutil.rmtree(war)
    assert killed == len(phases)
    print(f"{killed} kills of {studies} studies")


def _killed_in(phase: str, war: Path, chance: random.Random) -> bool:
    """Whether the study came to the phase, in which it is killed, or one of its runs is."""
    study = start_forked(*STUDY, cwd=war, output=war / "printed.txt")
    try:
        if not await_moment(PHASES[phase], war, study, chance):
            return False
        below = descendants(study.pid)
        if phase == "run alone":
            kill(below)  # the command makes them go on
            return True
        kill([study.pid, *chance.choice((below, []))])  # without their command runs end by themselves
        return True
    finally:
        _end(study, alone=phase == "run alone")


def _end(study: Forked, alone: bool) -> None:
    """The command is over, and all below it; where a run `alone` was killed, by itself and with success."""
    family = descendants(study.pid)
    if alone:
        assert study.wait(PATIENCE) == 0
    else:
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
