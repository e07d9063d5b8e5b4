"""A study that is killed again and again ends like one that was left in peace, to the bit."""

import random
from hashlib import sha256
from pathlib import Path

import pytest

from poslab.config.checking import check
from poslab.config.request import Config
from poslab.data.cache import prepare
from poslab.record.files import UNFINISHED
from poslab.record.manifest import read_manifest
from poslab.training.batches import TrainingBatches
from support.commands import command, start, tiny
from support.moments import STEPS, await_moment
from support.processes import descendants, kill
from support.runs import assert_equal_results, validation_losses, without_clock
from support.wandb_list import in_file

STUDY = [
    "study=killed",
    "logger=wandb",
    *tiny(
        trainer__max_steps=STEPS,
        trainer__checkpoint_seconds=0,  # after every step
        evaluate__validations=40,
        evaluate__segments=12,
        evaluate__sliding_windows=64,
    ),
]
MOMENTS = ("step", "checkpoint", "start", "row", "wandb", "evaluation", "finish")


# Whom a kill hits: the command with all that it has started, it alone, or the runs that it has started.
OF_A_STUDY, OF_ONE_RUN = ("all", "all", "command", "run"), ("all", "command")


def test_killed_three_times(tmp_path):
    _survives(tmp_path, ["-m", "pos=rope,alibi", "seed=0"], 2, OF_A_STUDY, kills=3, at_report=1)


def test_a_run_in_the_command_killed_three_times(tmp_path):
    _survives(tmp_path, ["pos=rope", "seed=0"], 1, OF_ONE_RUN, kills=3, at_report=1)


@pytest.mark.study
@pytest.mark.parametrize(
    ("asked", "runs", "hit"),
    [(["-m", "pos=rope,alibi", "seed=0,1"], 4, OF_A_STUDY), (["pos=rope", "seed=0"], 1, OF_ONE_RUN)],
    ids=["study", "one run"],
)
def test_killed_forty_times(asked, runs, hit, tmp_path):
    _survives(tmp_path, asked, runs, hit, kills=40, at_report=6)


def _survives(folder: Path, asked: list[str], runs: int, hit: tuple[str, ...], kills: int, at_report: int):
    asked = [*asked, *STUDY]
    peace, war = folder / "peace", folder / "war"
    for cwd in (peace, war):
        cwd.mkdir()
    ended = command(*asked, cwd=peace)
    assert ended.returncode == 0, ended.stderr
    chance = random.Random(kills)
    moments = [MOMENTS[index % len(MOMENTS)] for index in range(kills - at_report)] + ["report"] * at_report
    killed: dict[str, int] = {}
    while moments:
        study = start(*asked, cwd=war, output=war / "printed.txt")
        try:
            if not await_moment(moments[0], war, study, chance):  # it came to its end before that moment
                moments = ["report"] * len(moments)
                continue
            whom = chance.choice(hit)
            if whom == "run" and moments[0] != "report":
                kill(descendants(study.pid))  # the command starts them again from where they were
                killed["run"] = killed.get("run", 0) + 1
                moments.pop(0)
                if not moments or not await_moment(moments[0], war, study, chance):
                    continue
                whom = "all"
            kill([study.pid, *(descendants(study.pid) if whom == "all" else [])])
            killed[whom] = killed.get(whom, 0) + 1
            moments.pop(0)
        finally:
            kill([study.pid])
            study.wait()
    ended = command(*asked, cwd=war)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr + (war / "printed.txt").read_text()
    assert sum(killed.values()) == kills
    print(killed)
    names = sorted(path.name for path in (peace / "runs" / "killed").glob("[!.]*-seed*"))
    assert names == sorted(path.name for path in (war / "runs" / "killed").glob("[!.]*-seed*"))
    assert len(names) == runs
    for name in names:
        assert_equal_results(peace / "runs" / "killed" / name, war / "runs" / "killed" / name)
        manifest = read_manifest(war / "runs" / "killed" / name)
        assert manifest.batches == _batches(manifest.config)
        _whole_curve(war / "runs" / "killed" / name)
    left = [path for folder in ("runs", "reports") for path in (war / folder).rglob(".*")]
    assert not [path for path in left if UNFINISHED.fullmatch(path.name) and path.suffix != ".lock"]
    for table in ("summary", "differences", "bits_per_byte_by_length"):
        one, other = ((cwd / "reports" / "killed" / f"{table}.csv") for cwd in (peace, war))
        assert without_clock(one) == without_clock(other)


def _batches(config: dict) -> str:
    """The digest of batches 0, 1, 2, ..., none left out and none twice."""
    sections = {
        "study": "x",
        "tune": {"factors": [], "scheme_factors": [], "seeds": []},
        "question": None,
        "reference": None,
        "primary": None,
        "logger": {"name": "local"},
        "launcher": {"name": "local"},
    }
    trainer = {**config["trainer"], "checkpoint_seconds": 0}
    whole = check(Config, {**config, **sections, "trainer": trainer}, "")
    batches = TrainingBatches(whole, prepare(whole.data))
    digest = ""
    for index in range(STEPS):
        digest = sha256(digest.encode() + batches[index].digest).hexdigest()
    return digest


def _whole_curve(directory: Path) -> None:
    """W&B has one part, with every row of metrics.csv once."""
    (part,) = directory.glob("wandb/offline-run-*")
    losses = [(row["step"], row["validation/loss"]) for row in in_file(part) if "validation/loss" in row]
    assert len(losses) == len(dict(losses))
    assert dict(losses) == pytest.approx(validation_losses(directory / "metrics.csv"), rel=1e-6)
