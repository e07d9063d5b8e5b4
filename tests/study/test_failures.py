"""Failures in a study: other runs continue, and each failure is listed with its reason."""

import os
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from poslab.loggers.send.offline import identifier
from poslab.record.locks import TakenError
from poslab.record.manifest import read_manifest
from poslab.study.display.run_bar import RunDisplay
from poslab.study.execute import run_study
from poslab.study.run.budget import size_of
from poslab.study.run.execute import run
from poslab.study.run.plan import plan, resolve
from poslab.study.run.stopping import Stopper
from poslab.training.checkpoints import writer
from poslab.training.module import LanguageModel
from support.commands import called, read, start, tiny
from support.runs import TRACKED, StopsAt, assert_equal_results, inline, make, request, stopped, stopped_at
from support.tasks import until


def summary(folder: Path, study: str = "test") -> list[dict[str, str]]:
    return read(folder / "reports" / study / "summary.csv")


def test_impossible_runs_are_listed_and_the_others_continue(tmp_path, capsys):
    fits, of_a_pair = (inline(tmp_path, pos, "linear") for pos in ("none", "kerple"))
    too_wide = inline(tmp_path, "none", "linear", model__width=65536)
    diverges = inline(tmp_path, "none", "linear", trainer__learning_rate=1e30)
    assert run_study([too_wide, of_a_pair, diverges, fits], "a command") == 1
    shown = capsys.readouterr().err
    assert "Traceback" not in shown
    printed = shown.splitlines()[-3:]
    reasons = [line.partition("seed 0: ")[2].partition(" (see")[0] for line in printed]
    assert printed[0].startswith("not done: none / linear / seed 0: the run takes at least ")
    assert "lower model.width" in reasons[0]
    assert printed[1].startswith("not done: kerple / linear / seed 0: the bias of pos.scheme=kerple")
    assert "choose attention=flash or softmax" in reasons[1]
    assert "not a number at step" in reasons[2]
    listed = [(row["status"], row["reason"]) for row in summary(tmp_path)]
    states = ("failed", "failed", "diverged", "done")
    assert sorted(listed) == sorted(zip(states, [*reasons, ""], strict=True))
    manifest = plan(fits, tmp_path / "runs").run_status.manifest
    assert size_of(resolve(fits.config)).memory < manifest.memory_bytes  # an upper bound


def test_a_run_that_runs_out_of_memory_says_what_to_choose(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(LanguageModel, "training_step", lambda *arguments: torch.empty(2**60))
    assert run_study([inline(tmp_path)], "a command") == 1
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    assert "out of memory" in printed.splitlines()[-1]
    assert "choose a smaller trainer.batch_size or a larger trainer.accumulate" in printed.splitlines()[-1]


def test_a_run_is_refused_while_another_command_trains_it(tmp_path):
    class Another(RunDisplay):
        def step(self, step: int, *_: object) -> None:
            if step == 1:
                with pytest.raises(TakenError, match=r"-seed0-.*\.lock"):
                    make(request(), tmp_path)

    assert run(plan(request(), tmp_path), Another("trains", quiet=True), Stopper()).status == "done"


@pytest.mark.parametrize(
    ("commands", "launcher", "logger"),
    [(2, "inline", "local"), pytest.param(8, "local", "wandb", marks=pytest.mark.study)],
)
def test_concurrent_commands_run_each_run_once(commands, launcher, logger, tmp_path):
    requests = tiny(trainer__max_steps=20, launcher=launcher, launcher__cores_per_run=1, logger=logger)
    settings = ["-m", "pos=rope,alibi", "study=x", *requests]
    outputs = [tmp_path / f"printed{index}.txt" for index in range(commands)]
    studies = [start(*settings, cwd=tmp_path, output=output) for output in outputs]
    assert [study.wait(300) for study in studies] == [0] * commands
    for output in outputs:
        assert "Traceback" not in output.read_text()
        assert "reports/x/index.html" in output.read_text()
    directories = sorted((tmp_path / "runs" / "x").glob("[!.]*-seed*"))
    assert len(directories) == 2
    for directory in directories:
        manifest = read_manifest(directory)
        assert (manifest.status, manifest.processes) == ("done", 1)
        assert (directory / "log.txt").read_text().count("step 20/20") == 1
        assert len(list(directory.glob("wandb/offline-run-*"))) == (logger == "wandb")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_run_waits_if_the_disk_is_full(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not allow mounts")
    settings = tiny(study="x", logger="local", trainer__max_steps=60, trainer__checkpoint_seconds=0)
    output, peaceful = tmp_path / "printed.txt", tmp_path / "peace"
    try:
        with start(*settings, cwd=disk, output=output) as study:
            until(lambda: any(disk.glob("runs/x/*/checkpoints/0000001*")), command=study)
            with (disk / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
                while True:
                    ballast.write(bytes(4096))
            until(lambda: "the disk is full" in output.read_text(), command=study)
            assert any(disk.glob("runs/x/*/checkpoints/*.pt"))
            (disk / "ballast").unlink()
            assert study.wait(120) == 0, output.read_text()
        assert "the disk has room again" in output.read_text()
        assert "Traceback" not in output.read_text()
        peaceful.mkdir()
        called(*settings, cwd=peaceful)
        (one,), (other,) = (folder.glob("runs/x/rope-*") for folder in (peaceful, disk))
        assert_equal_results(one, other)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_two_studies_in_one_command_and_one_run_with_two_names(tmp_path, capsys):
    """The studies' runs have the same names; each study has one run, however often it is requested."""
    requests = [inline(tmp_path, study=study, pos__base=500.0, trainer__max_steps=5) for study in ("a", "b")]
    requests += [replace(request, pos="rope_500") for request in requests]
    assert run_study(requests, "a command") == 0
    assert "runs copied from study a: 1" in capsys.readouterr().err
    for study in ("a", "b"):
        assert [row["status"] for row in summary(tmp_path, study)] == ["done"]


def test_wandb_has_one_curve_though_another_logger_was_used_between(tmp_path):
    changes = {"trainer__checkpoint_seconds": 0.0}
    for logger, step in ((TRACKED, 5), ({"name": "local"}, 9), (TRACKED, 13)):
        job = stopped_at(step, request(logger=logger, **changes), tmp_path)
    job.directory.joinpath("manifest.json").write_text("{")  # its id is lost with it
    manifest = make(request(logger=TRACKED, **changes), tmp_path)
    assert manifest.status == "done"
    (part,) = job.directory.glob("wandb/offline-run-*")
    assert identifier(part) == manifest.wandb.id


def test_a_large_checkpoint_is_written_completely(tmp_path, monkeypatch):
    """Even if it takes longer than a step may take after a stop."""
    stopper = Stopper()
    stopper.step_seconds = 0.05

    def slow(content):
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            pass
        return writer(content)

    monkeypatch.setattr("poslab.training.checkpoints.writer", slow)
    job = plan(request(trainer__checkpoint_seconds=1000.0), tmp_path)
    stopped(job, StopsAt(7), stopper)
    assert [path.name[:8] for path in job.directory.glob("checkpoints/*.pt")] == ["00000007"]
