"""A study that is killed again and again ends like one that was left in peace, to the bit."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from commands import command, environment, rows, start, tiny

from poslab.config.request import Config
from poslab.config.schema import check
from poslab.data.cache import prepare
from poslab.record.manifest import read_manifest
from poslab.training.checkpoints import from_bytes
from poslab.training.loop import TrainingBatches

STEPS = 120
STUDY = [
    "-m",
    "pos=rope,alibi",
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
PATIENCE = 120.0  # seconds that a moment is waited for
CLOCK = ("second", "started", "finished")  # what the columns that tell of the machine's speed are called
MOMENTS = ("step", "checkpoint", "start", "row", "wandb", "step", "evaluation", "checkpoint")


def test_killed_three_times(tmp_path):
    _survives(tmp_path, "seed=0", kills=3, at_report=1)


@pytest.mark.study
def test_killed_sixty_times(tmp_path):
    _survives(tmp_path, "seed=0,1", kills=60, at_report=8)


def _survives(folder: Path, seeds: str, kills: int, at_report: int) -> None:
    asked = [*STUDY, seeds]
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
            if not _await(moments[0], war, study, chance):  # it came to its end before that moment
                moments = ["report"] * len(moments)
                continue
            whom = chance.choice(("all", "all", "command", "run"))
            if whom == "run" and moments[0] != "report":
                _kill(_descendants(study.pid))  # the command starts them again from where they were
                killed["run"] = killed.get("run", 0) + 1
                moments.pop(0)
                if not moments or not _await(moments[0], war, study, chance):
                    continue
                whom = "all"
            _kill([study.pid, *(_descendants(study.pid) if whom == "all" else [])])
            killed[whom] = killed.get(whom, 0) + 1
            moments.pop(0)
        finally:
            _kill([study.pid])
            study.wait()
    ended = command(*asked, cwd=war)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr + (war / "printed.txt").read_text()
    assert sum(killed.values()) == kills
    print(killed)
    names = sorted(path.name for path in (peace / "runs" / "killed").glob("[!.]*-seed*"))
    assert names == sorted(path.name for path in (war / "runs" / "killed").glob("[!.]*-seed*"))
    assert len(names) == 2 * len(seeds.split(","))
    for name in names:
        _equal_results(peace / "runs" / "killed" / name, war / "runs" / "killed" / name)
        manifest = read_manifest(war / "runs" / "killed" / name)
        assert manifest["batches"] == _batches(manifest["config"])
        _whole_curve(war / "runs" / "killed" / name)
    for table in ("summary", "differences", "bits_per_byte_by_length"):
        one, other = ((cwd / "reports" / "killed" / f"{table}.csv") for cwd in (peace, war))
        assert _without_clock(one) == _without_clock(other)


def _await(moment: str, cwd: Path, study: subprocess.Popen[bytes], chance: random.Random) -> bool:
    """Whether the moment came while the study ran."""
    begun = time.monotonic()
    after = chance.uniform(0.5, 12)
    steps = _steps(cwd)
    more = chance.randrange(2, 12)
    sizes = _sizes(cwd)
    come: dict[str, Callable[[], bool]] = {
        "start": lambda: time.monotonic() - begun > after,
        "step": lambda: _steps(cwd) >= steps + more,
        "checkpoint": lambda: any(cwd.glob("runs/killed/*/checkpoints/.*.pt.*")),
        "row": lambda: any(cwd.glob("runs/killed/*/.metrics.csv.*")),
        "wandb": lambda: _sizes(cwd) != sizes,
        "evaluation": lambda: "evaluating" in _phases(cwd),
        "report": lambda: any(cwd.glob("reports/killed/**/.*")),
    }
    while study.poll() is None:
        try:
            if come[moment]():
                return True
        except FileNotFoundError:  # a folder that was removed while it was looked through
            continue
        assert time.monotonic() - begun < PATIENCE, moment
        time.sleep(0.001)
    return False


def _steps(cwd: Path) -> int:
    """Steps that all runs together have reached, by their checkpoints."""
    reached: dict[Path, int] = {}
    for path in cwd.glob("runs/killed/*/checkpoints/*.pt"):
        reached[path.parent] = max(reached.get(path.parent, 0), int(path.name[:8]))
    return sum(reached.values()) + STEPS * sum(1 for _ in cwd.glob("runs/killed/*/checkpoint.pt"))


def _sizes(cwd: Path) -> dict[Path, int]:
    try:
        return {path: path.stat().st_size for path in cwd.glob("runs/killed/*/wandb/*/*.wandb")}
    except FileNotFoundError:  # removed while it was looked through
        return {}


def _phases(cwd: Path) -> set[str]:
    phases = set()
    for path in cwd.glob("runs/killed/*/progress.json"):
        try:
            phases.add(json.loads(path.read_text())["phase"])
        except (FileNotFoundError, ValueError):
            continue
    return phases


def _descendants(parent: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, waiting = [], [parent]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _kill(processes: list[int]) -> None:
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _equal_results(one: Path, other: Path) -> None:
    """Weights, every metric and the digest of the batches."""
    manifests = [read_manifest(directory) for directory in (one, other)]
    assert [manifest["status"] for manifest in manifests] == ["done", "done"]
    digests = [_weights(directory) for directory in (one, other)]
    assert digests[0] == digests[1]
    for name in ("extrapolation.csv", "position.csv"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    assert _without_clock(one / "metrics.csv") == _without_clock(other / "metrics.csv")
    assert manifests[0]["batches"] == manifests[1]["batches"]
    assert not (other / "checkpoints").exists()


def _weights(directory: Path) -> str:
    saved = from_bytes((directory / "checkpoint.pt").read_bytes())["weights"]
    return sha256(b"".join(tensor.numpy().tobytes() for tensor in saved.values())).hexdigest()


def _batches(config: dict) -> str:
    """The digest of batches 0, 1, 2, ..., none left out and none twice."""
    sections = {
        "study": "x",
        "tune": {"factors": [], "seeds": []},
        "question": None,
        "reference": None,
        "logger": {"name": "local"},
        "launcher": {"name": "local"},
    }
    trainer = {**config["trainer"], "checkpoint_seconds": 0}
    whole = check(Config, {**config, **sections, "trainer": trainer}, "")
    batches = TrainingBatches(whole, prepare(whole.data))
    digest = ""
    for index in range(STEPS):
        digest = sha256(digest.encode() + batches[index][1]).hexdigest()
    return digest


def _whole_curve(directory: Path) -> None:
    """W&B has one part, with every row of metrics.csv once."""
    (part,) = directory.glob("wandb/offline-run-*")
    reader = Path(sys.executable).parent / "wandb"
    told = subprocess.run(
        [str(reader), "leet", "inspect", "--json", str(part)],
        capture_output=True,
        text=True,
        check=True,
        env=environment(directory),
    )
    records = [json.loads(line) for line in told.stdout.splitlines()]
    history = [record["history"]["item"] for record in records if record["type"] == "history"]
    losses = {row["step"]: row["validation/loss"] for row in history if "validation/loss" in row}
    assert len(losses) == sum("validation/loss" in row for row in history)
    assert losses == {
        int(row["step"]): float(row["validation_nll"]) / float(row["validation_tokens"])
        for row in rows(directory / "metrics.csv")
    }


def _without_clock(path: Path) -> list[dict[str, str]]:
    return [
        {key: value for key, value in row.items() if not any(word in key for word in CLOCK)}
        for row in rows(path)
    ]
