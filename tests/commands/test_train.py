"""A study from start to end as a user types it, and the precision of its runs by device."""

from dataclasses import replace

import pytest
import torch

from poslab.config.compose import arms
from poslab.config.schema import ConfigError
from poslab.report.render import paper
from poslab.study.run import plan as planning
from poslab.study.run.plan import plan
from support.commands import TINY, called, read
from support.forks import one_of_each
from support.models import CONF
from support.runs import request


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """`-m pos=rope,learned` in an empty directory, without a W&B login."""
    cwd = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper, "draw_all", one_of_each)
        return cwd, called("-m", "pos=rope,learned", "launcher=inline", *TINY, cwd=cwd)


def test_a_study_leaves_records_and_a_report(study):
    cwd, ended = study
    assert "reports/ablation/index.html" in ended.stdout
    report = cwd / "reports" / "ablation"
    for name in ("index.html", "report.md", "answer.png"):
        assert (report / name).stat().st_size > 1000
    assert (report / "figures" / "bits_per_byte_by_length.svg").exists()
    summary = {row["pos"]: row for row in read(report / "summary.csv")}
    assert [row["status"] for row in summary.values()] == ["done", "done"]
    assert float(summary["rope"]["loss_8x"]) > 0
    assert summary["learned"]["loss_1x"]
    assert summary["learned"]["loss_2x"] == ""  # undefined past L: an empty cell
    assert summary["learned"]["sliding_8x"] == ""


def test_bfloat16_takes_a_cpu_that_has_it_and_is_never_the_default_there(tmp_path, monkeypatch):
    wanted = request(trainer__accelerator="cpu", trainer__precision="bfloat16")
    elsewhere = request(
        trainer__accelerator="cpu", trainer__precision="bfloat16", launcher=arms(CONF / "launcher")["slurm"]
    )
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": True, "avx512_bf16": False})
    with pytest.raises(ConfigError, match="CPU has no instructions for it"):
        plan(wanted, tmp_path)
    assert plan(elsewhere, tmp_path, local=False).config.trainer.precision == "bfloat16"  # checked there
    for has in ({"avx512_f": True, "avx512_bf16": True}, {"neon": True, "bf16": True}):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda has=has: has)
        assert plan(wanted, tmp_path).config.trainer.precision == "bfloat16"
    unsaid = request(trainer__accelerator="cpu", trainer__precision="auto")
    assert plan(unsaid, tmp_path).config.trainer.precision == "float32"


@pytest.mark.parametrize("gpu", [None, "without bfloat16", "with bfloat16"])
def test_a_run_on_a_cluster_is_the_same_wherever_its_command_runs(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "cuda_available", lambda: gpu is not None)
    monkeypatch.setattr(planning, "bfloat16_available", lambda: gpu == "with bfloat16")
    asked = request(
        trainer__accelerator="auto", trainer__precision="auto", launcher=arms(CONF / "launcher")["slurm"]
    )
    job = plan(asked, tmp_path, local=False)
    assert (job.config.trainer.accelerator, job.config.trainer.precision) == ("cuda", "bfloat16")
    # On the node its process plans the run again with the resolved value of `auto`.
    told = replace(asked, config=job.config)
    if gpu == "with bfloat16":
        assert plan(told, tmp_path).identity == job.identity
    else:
        lacking = "no CUDA device" if gpu is None else "GPU has no instructions for it"
        with pytest.raises(ConfigError, match=lacking):
            plan(told, tmp_path)
