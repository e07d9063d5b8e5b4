"""launcher=inline: runs in the command's own process."""

import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from poslab.config.request import Request
from poslab.model.positions.rope import RoPE
from poslab.record.active_runs import announced
from poslab.record.archive import ARCHIVE, pack
from poslab.record.facts import Manifest
from poslab.record.manifest import read_manifest
from poslab.record.study_list import UNNAMED, enlist, read_study_list
from poslab.record.writer import RunRecord
from poslab.study import execute
from poslab.study.execute import run_study
from poslab.study.launch.contract import Task
from poslab.study.launch.devices import peak_memory
from poslab.study.launch.launchers.inline import Inline
from poslab.study.launch.leases import Lease
from poslab.study.run.execute import RunExecutor
from poslab.study.run.job import Job
from poslab.study.run.plan import plan
from poslab.study.run.worker import run_in_command
from poslab.training.module import LanguageModel
from support import runs
from support.runs import TRACKED, make, request

SHORT: dict[str, Any] = {"trainer__max_steps": 6, "trainer__warmup_steps": 2}


def inline(folder: Path, *parts: str, **changes: Any) -> Request:
    return runs.inline(folder, *parts, **SHORT, **changes)


def only_run(folder: Path) -> Path:
    (manifest,) = folder.glob("runs/*/*/manifest.json")
    return manifest.parent


def test_a_command_reports_its_own_runs_though_another_has_begun(tmp_path, monkeypatch, capsys):
    finish, another = execute._finish, ExitStack()
    folder = tmp_path / "runs" / UNNAMED

    def while_another_begins(*arguments, **options):
        members = finish(*arguments, **options)
        enlist(folder, ["alibi-seed0-000000000000"], "another command")
        another.enter_context(announced([folder / "alibi-seed0-000000000000"]))
        return members

    monkeypatch.setattr(execute, "_finish", while_another_begins)
    with another:
        assert run_study([inline(tmp_path, study=UNNAMED)], "a command") == 0
    assert "no report" not in capsys.readouterr().err
    assert "a command" in (tmp_path / "reports" / UNNAMED / "report.md").read_text()
    assert "alibi-seed0-000000000000" in read_study_list(folder).runs  # which is still waiting


def test_loggers_without_the_finished_runs_are_named(tmp_path, capsys):
    assert run_study([inline(tmp_path)], "a command") == 0
    assert "not sent to" not in capsys.readouterr().err
    csv = {"csv": {"_target_": "pytorch_lightning.loggers.CSVLogger", "save_dir": str(tmp_path)}}
    assert run_study([inline(tmp_path, logger={"name": "local", **csv})], "a command") == 0
    assert "not sent to csv" in capsys.readouterr().err


def test_an_archived_study_grows_without_training_its_runs_again(tmp_path, capsys):
    """With a BPE, which is not archived either. W&B then gets the archived runs, too."""
    first, second = (inline(tmp_path, seed=seed, data__vocabulary=300, logger=TRACKED) for seed in (0, 1))
    assert run_study([inline(tmp_path, data__vocabulary=300)], "a command") == 0
    run, archive = only_run(tmp_path), tmp_path / ARCHIVE
    archive.write_bytes(pack(run.parent))
    shutil.rmtree(run.parent)
    subprocess.run(["tar", "xf", archive, "-C", tmp_path / "runs"], check=True)
    assert not (run / "checkpoint.pt").exists()
    assert run_study([first, second], "a command") == 0
    printed = capsys.readouterr().err
    assert "already finished, not repeated: 1 of 2 runs" in printed
    assert "failed" not in printed
    assert not (run / "checkpoint.pt").exists()
    job = plan(first, tmp_path / "runs")
    (run / "position.csv").rename(tmp_path / "position.csv")  # a lost table needs a training, too
    assert job.run_status.damage == (f"{run / 'position.csv'} is missing",)
    (tmp_path / "position.csv").rename(run / "position.csv")
    assert job.settled
    # Measured by other code, it is trained again, since there are no weights to evaluate.
    RunRecord(run, read_manifest(run)).update(code_evaluation="0" * 16)
    assert f"{run / 'checkpoint.pt'} is missing" in job.run_status.damage
    assert not job.run_status.outdated
    assert make(first, tmp_path / "runs").status == "done"
    assert (run / "checkpoint.pt").exists()


def test_a_run_is_planned_again_on_its_machine_by_the_current_code(tmp_path, monkeypatch, capsys):
    jobs: list[Job] = []

    def run(job: Job, *others: Any) -> Manifest:
        jobs.append(job)
        return Manifest(status="done")

    monkeypatch.setattr("poslab.study.run.execute.run", run)
    job = plan(request(evaluate__longest="auto"), tmp_path)
    assert run_in_command(job) == 0
    assert jobs[0].request.config == job.config  # shown by loggers
    assert run_in_command(replace(job, code=replace(job.code, evaluation="older"))) == 2
    assert "changed since the study began" in capsys.readouterr().err
    assert len(jobs) == 1


def test_runs_wait_for_cores_used_by_another_command(tmp_path, monkeypatch, capsys):
    """They run once each when the cores are free, and each ends before the next begins."""
    lease, leases = Inline.lease, []

    def taken_at_first(launcher: Inline, task: Task) -> Lease | None:
        leases.append(task.name)
        return None if len(leases) < 4 else lease(launcher, task)

    monkeypatch.setattr(Inline, "lease", taken_at_first)
    assert run_study([inline(tmp_path), inline(tmp_path, "alibi")], "a command") == 0
    assert len(list(tmp_path.glob("runs/*/*/manifest.json"))) == 2
    shown = [line for line in capsys.readouterr().err.splitlines() if line.startswith(("running:", "done:"))]
    order = [f"{state}: {pos}" for pos in ("rope", "alibi") for state in ("running", "done")]
    assert [line.partition(" / ")[0] for line in shown] == order


def test_output_and_breakpoints_of_a_scheme_reach_the_user(tmp_path, monkeypatch, capsys):
    rotate, stops = RoPE.rotate, []

    def talkative(scheme: RoPE, *given: Any) -> Any:
        if not stops:
            print("rotated", *given[0].shape)
            breakpoint()
        return rotate(scheme, *given)

    monkeypatch.setattr(RoPE, "rotate", talkative)
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append(sys._getframe(1).f_code.co_name))
    assert run_study([inline(tmp_path)], "a command") == 0
    assert "rotated " in capsys.readouterr().out
    assert stops == ["talkative"]


def test_an_error_reaches_the_user_with_its_traceback(tmp_path, monkeypatch, capsys):
    def fails(*given: Any) -> None:
        raise ZeroDivisionError("in the middle of a step")

    monkeypatch.setattr(LanguageModel, "training_step", fails)
    assert run_study([inline(tmp_path)], "a command") == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "in fails" in shown
    assert "not done: rope / flash / seed 0: ZeroDivisionError: in the middle of a step" in shown
    assert f"(see {only_run(tmp_path) / 'error.txt'})" in shown
    monkeypatch.undo()
    assert run_study([inline(tmp_path)], "a command") == 0
    assert not (only_run(tmp_path) / "error.txt").exists()


def test_the_memory_of_a_run_is_not_that_of_an_earlier_one(tmp_path):
    torch.ones(2**27)  # 512 MiB, as for a larger model
    earlier = peak_memory()
    assert make(request(**SHORT), tmp_path).memory_bytes < earlier


def test_a_run_that_is_stopped_in_wandb_ends_and_the_others_do_not(tmp_path, monkeypatch):
    def step(executor: RunExecutor, number: int, *_: Any) -> None:
        if executor.job.config.seed == 0 and number == 4:
            executor.stopper.request("W&B")

    monkeypatch.setattr(RunExecutor, "step", step)
    assert run_study([inline(tmp_path, seed=seed) for seed in (0, 1)], "a command") == 1
    found = [read_manifest(path.parent) for path in tmp_path.glob("runs/*/*/manifest.json")]
    ends = {manifest.seed: (manifest.status, manifest.reason) for manifest in found}
    assert ends == {0: ("interrupted", "stopped by W&B"), 1: ("done", None)}
