"""Kills in every phase of a study: what it ends with is the same to the bit, and nothing is left behind.

The commands are forked from a process that has imported PyTorch, so that a kill takes seconds. Under -m study
there are 47 rounds. In each, a study is killed once in every phase, in the order in which it comes to them:
305 kills in all. In every other round it has two runs, which the command forks; a single run is made in the
command, and cannot be killed without it.
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

SETTINGS = [
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
STUDIES = {
    "one run": ["pos=rope", "seed=0", *SETTINGS],
    "two runs": ["-m", "pos=rope", "seed=0,1", *SETTINGS],
}
PHASES = {  # what is awaited in each
    "start": "start of a forked command",
    "training": "step",
    "checkpoint": "checkpoint",
    "runs": "step",  # these without their command
    "evaluation": "evaluation",
    "finish": "finish",
    "report": "report",
}
ROUNDS = 47


@pytest.fixture(scope="module")
def peace(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {}
    for name, study in STUDIES.items():
        folders[name] = tmp_path_factory.mktemp("peace")
        ended = command(*study, cwd=folders[name])
        assert ended.returncode == 0, ended.stderr
    return folders


@pytest.mark.study
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_kill_in_each_phase(number: int, peace: dict[str, Path], tmp_path: Path) -> None:
    """Where a study ends before it comes to the next phase, another one is begun for what is left."""
    chance = random.Random(number)
    name = list(STUDIES)[number % 2]
    phases = [phase for phase in PHASES if phase != "runs" or name == "two runs"]
    studies, waiting = 0, phases
    while waiting:
        studies += 1
        war = tmp_path / str(studies)
        war.mkdir()
        while waiting and (killed := _kill_one_command(STUDIES[name], waiting, war, chance)):
            waiting = waiting[killed:]
        ended = command(*STUDIES[name], cwd=war)
        assert ended.returncode == 0, ended.stderr
        assert "Traceback" not in ended.stderr + (war / "printed.txt").read_text()
        _is_as_in_peace(peace[name], war)
        shutil.rmtree(war)
    print(f"round {number}: {len(phases)} kills of {studies} studies of {name}")


def _kill_one_command(asked: list[str], phases: list[str], war: Path, chance: random.Random) -> int:
    """Give the command and kill it in the first phase; how many phases were killed in.

    Where its runs are killed the command has to resume them, and is killed in the phase after that.
    """
    study = start_forked(*asked, cwd=war, output=war / "printed.txt")
    killed = 0
    try:
        for phase in phases:
            if not await_moment(PHASES[phase], war, study, chance):
                return killed
            killed += 1
            below = descendants(study.pid)
            if phase != "runs":
                kill([study.pid, *chance.choice((below, []))])  # without their command runs end by themselves
                return killed
            assert below
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
