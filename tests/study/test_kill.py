"""A study that is killed repeatedly ends with the same bits as an uninterrupted one."""

import random
from pathlib import Path

import pytest

from poslab.record.files import UNFINISHED
from support.commands import called, command, start, tiny
from support.moments import await_moment
from support.processes import descendants, kill
from support.runs import assert_equal_results, validation_losses, without_clock
from support.wandb_list import in_file

MOMENTS = ("step", "checkpoint", "start", "row", "wandb", "evaluation", "finish")
# The killed processes: the command and its descendants, only the command, only the descendants, or in the
# short test only the runs, which are forked (test_forks.py kills the server that forks them).
OF_A_STUDY, OF_ONE_RUN = ("all", "all", "command", "run"), ("all", "command")


def test_a_study_killed_while_it_trains_and_reports(tmp_path):
    kills = [("step", "command"), ("checkpoint", "forked"), ("report", "all")]
    _survives(tmp_path, ["-m", "pos=rope,alibi", "seed=0"], 2, kills)


def test_a_run_in_the_command_killed_while_it_is_evaluated(tmp_path):
    _survives(tmp_path, ["pos=rope", "seed=0"], 1, [("evaluation", "all")])


@pytest.mark.study
@pytest.mark.parametrize(
    ("asked", "runs", "hit"),
    [(["-m", "pos=rope,alibi", "seed=0,1"], 4, OF_A_STUDY), (["pos=rope", "seed=0"], 1, OF_ONE_RUN)],
    ids=["study", "one run"],
)
def test_killed_forty_times(asked, runs, hit, tmp_path):
    chance = random.Random(40)
    kills = [(MOMENTS[index % len(MOMENTS)], chance.choice(hit)) for index in range(34)]
    kills += [("report", chance.choice(OF_ONE_RUN)) for _ in range(6)]
    _survives(tmp_path, asked, runs, kills, steps=120, logger="wandb")


def _survives(
    folder: Path,
    asked: list[str],
    runs: int,
    kills: list[tuple[str, str]],
    steps: int = 24,
    logger: str = "local",
):
    """Kill at each moment in `kills` the processes named there, and compare with an uninterrupted study."""
    settings = tiny(
        trainer__max_steps=steps,
        trainer__checkpoint_seconds=0,  # after every step
        launcher__cores_per_run=1,
        evaluate__validations=steps // 3,
        evaluate__segments=12,
        evaluate__sliding_windows=64,
    )
    asked = [*asked, "study=killed", f"logger={logger}", *settings]
    peace, war = folder / "peace", folder / "war"
    for cwd in (peace, war):
        cwd.mkdir()
    called(*asked, "launcher=inline", cwd=peace)
    chance, left = random.Random(len(kills)), list(kills)
    while left:
        with start(*asked, cwd=war, output=war / "printed.txt") as study:
            whom = "run"
            while left and whom in ("run", "forked"):
                moment, whom = left[0]
                if not await_moment(moment, war, study, chance):  # it ended before that moment
                    left = [("report", "all") for _ in left]
                    break
                # The command resumes the runs.
                below = [] if whom == "command" else descendants(study.pid)
                if whom == "forked":
                    below = [process for started in below for process in descendants(started)]
                kill([study.pid, *below] if whom in ("all", "command") else below)
                left.pop(0)
    ended = command(*asked, cwd=war)
    assert "Traceback" not in ended.stderr + (war / "printed.txt").read_text()
    names = sorted(path.name for path in (peace / "runs" / "killed").glob("[!.]*-seed*"))
    assert names == sorted(path.name for path in (war / "runs" / "killed").glob("[!.]*-seed*"))
    assert len(names) == runs
    for name in names:
        assert_equal_results(peace / "runs" / "killed" / name, war / "runs" / "killed" / name)
        if logger == "wandb":
            _whole_curve(war / "runs" / "killed" / name)
    left = [path for folder in ("runs", "reports") for path in (war / folder).rglob(".*")]
    assert not [path for path in left if UNFINISHED.fullmatch(path.name) and path.suffix != ".lock"]
    for table in ("summary", "differences", "bits_per_byte_by_length"):
        one, other = ((cwd / "reports" / "killed" / f"{table}.csv") for cwd in (peace, war))
        assert without_clock(one) == without_clock(other)


def _whole_curve(directory: Path) -> None:
    """Check that W&B has one file, with every row of metrics.csv once."""
    (part,) = directory.glob("wandb/offline-run-*")
    losses = [(row["step"], row["validation/loss"]) for row in in_file(part) if "validation/loss" in row]
    assert len(losses) == len(dict(losses))
    assert dict(losses) == pytest.approx(validation_losses(directory / "metrics.csv"), rel=1e-6)
