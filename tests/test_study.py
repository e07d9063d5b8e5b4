"""The commands as a user types them: a study from end to end, again, and what goes wrong."""

import fcntl
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import ROOT, TINY, command, rows
from conftest import CONF, arms, make, request

from poslab.config.request import Config, Request
from poslab.config.schema import ConfigError, check
from poslab.record.locks import TakenError
from poslab.record.manifest import read_manifest
from poslab.study.run import identity
from poslab.study.run.identity import EVALUATION, TRAINING, code_fingerprints, sources
from poslab.study.run.plan import plan
from poslab.study.run.worker import request_text
from poslab.training.module import LanguageModel
from poslab.training.trained_model import load


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """`-m pos=rope,learned` in an empty directory, without a W&B login."""
    cwd = tmp_path_factory.mktemp("study")
    return cwd, command("-m", "pos=rope,learned", *TINY, cwd=cwd)


def test_a_study_leaves_records_and_a_report(study):
    cwd, ended = study
    assert ended.returncode == 0, ended.stderr
    assert "reports/ablation/index.html" in ended.stdout
    report = cwd / "reports" / "ablation"
    for name in ("index.html", "report.md", "figures/bits_per_byte_by_length.svg"):
        assert (report / name).stat().st_size > 1000
    summary = {row["pos"]: row for row in rows(report / "summary.csv")}
    assert [row["status"] for row in summary.values()] == ["done", "done"]
    assert float(summary["rope"]["loss_8x"]) > 0
    assert summary["learned"]["loss_1x"]
    assert summary["learned"]["loss_2x"] == ""  # undefined past L: a gap, never a number
    assert summary["learned"]["sliding_8x"] == ""


def test_a_record_says_what_was_run(study):
    cwd, _ = study
    (directory,) = (cwd / "runs" / "ablation").glob("rope-*")
    manifest = read_manifest(directory)
    assert manifest["status"] == "done"
    assert manifest["kernel"] == "torch flash (cpu)"
    assert manifest["tokens"] == 6 * 4 * 32
    assert manifest["data"]["fingerprint"]
    assert [row["step"] for row in rows(directory / "metrics.csv")] == ["2", "4", "6"]
    assert len(rows(directory / "position.csv")) == 8 * 32
    gpt = load(directory)
    assert gpt.parameter_count() == manifest["parameters"]


def test_wandb_holds_every_point_offline(study):
    """Read back with wandb's own reader, as a user would."""
    cwd, ended = study
    assert "wandb sync runs/ablation/*/wandb/offline-run-*" in ended.stderr
    (directory,) = (cwd / "runs" / "ablation").glob("rope-*")
    reader = Path(sys.executable).parent / "wandb"
    told = subprocess.run(
        [str(reader), "leet", "inspect", "--json", str(next(directory.glob("wandb/offline-run-*")))],
        capture_output=True,
        text=True,
        check=True,
    )
    records = [json.loads(line) for line in told.stdout.splitlines()]
    history = json.dumps([record for record in records if record["type"] == "history"])
    for row in rows(directory / "metrics.csv"):
        assert str(float(row["validation_nll"]) / float(row["validation_tokens"]))[:12] in history
    started = next(record["run"] for record in records if record["type"] == "run")
    assert started["run_group"] == "ablation"
    assert started["display_name"] == "rope / flash / seed 0"
    assert started["config"]["update"]["pos"] == "rope"
    assert started["config"]["update"]["pos_options"]["base"] == 10_000
    summary = json.dumps([record for record in records if record["type"] == "summary"])
    assert "bits_per_byte_8x" in summary
    assert "extrapolation/bits_per_byte" in history


def test_the_same_command_again_trains_nothing(study):
    cwd, _ = study
    before = {path: path.stat().st_mtime_ns for path in (cwd / "runs").rglob("metrics.csv")}
    ended = command("-m", "pos=rope,learned", *TINY, cwd=cwd)
    assert ended.returncode == 0, ended.stderr
    assert "2 of 2 runs are made already" in ended.stderr
    assert "step" not in ended.stderr
    assert before == {path: path.stat().st_mtime_ns for path in (cwd / "runs").rglob("metrics.csv")}


def test_the_report_is_made_again_from_the_records_alone(study):
    cwd, _ = study
    report = cwd / "reports" / "ablation"
    before = {path.name: path.read_bytes() for path in report.rglob("*") if path.is_file()}
    ended = command("study=ablation", f"reports={cwd / 'again'}", cwd=cwd, script="report.py")
    assert ended.returncode == 0, ended.stderr
    again = {
        path.name: path.read_bytes() for path in (cwd / "again" / "ablation").rglob("*") if path.is_file()
    }
    assert again == before


def test_a_run_that_fails_is_told_and_the_others_go_on(tmp_path):
    ended = command("-m", "trainer.learning_rate=1e-3,1e30", "logger=local", "study=x", *TINY, cwd=tmp_path)
    assert ended.returncode == 1
    assert "not a number at step" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert sorted(row["status"] for row in rows(tmp_path / "reports/x/summary.csv")) == ["diverged", "done"]


REFUSED = {
    "an unknown scheme": (["pos=rotary"], "pos=rotary does not exist; there are alibi"),
    "an unknown key": (["trainer.max_step=3"], "Could not override 'trainer.max_step'"),
    "an added key": (["+trainer.max_step=3"], "trainer.max_step is not a setting; trainer has max_steps"),
    "a wrong type": (["trainer.max_steps=many"], "trainer.max_steps='many': input should be a valid integer"),
    "an odd head width": (["model.width=12"], "heads of odd width 3: choose an even one"),
    "heads that do not divide": (["model.heads=3"], "width=128 is not a multiple of heads=3"),
    "a length below 1": (
        ["context_length=0"],
        "context_length=0: input should be greater than or equal to 1",
    ),
    "a slash in the study": (["study=../elsewhere"], "study: '../elsewhere' must be letters"),
    "a base of a wrong type": (["pos.base=big"], "pos.base='big': input should be a valid number"),
    "a negative base": (["pos.base=-1"], "pos.base=-1: input should be greater than 0"),
    "one bad arm of a study": (["-m", "pos=rope,alibi", "seed=0,-1"], "seed=-1"),
    "text without a path": (["data=text"], "data.path=FILE"),
    "a swept sweep": (["-m", "sweep=bases,quickstart"], "cannot be swept"),
    "a pair without a fast form": (
        ["pos=kerple", "attention=linear"],
        "pos.scheme=kerple, whose bias never becomes geometric: choose attention=flash or softmax",
    ),
    "rescaling what has no rotation": (
        ["-m", "pos=rope,alibi", "evaluate.rescale=[none,pi]"],
        "pos.scheme=alibi has none",
    ),
    "rescaling alone": (["evaluate.rescale=[pi]"], "must begin with none"),
    "an unknown rescaling": (["evaluate.rescale=[none,ntq]"], "evaluate.rescale.1='ntq'"),
    "a factor that nothing takes": (["evaluate.rescale_factor=4"], "is for pi, ntk or yarn"),
    "recalibration of what is not dropped": (["evaluate.recalibration_steps=5"], "is for drop"),
    "a rescaling that changes nothing": (
        ["evaluate.rescale=[none,dynamic]", "evaluate.longest=1"],
        "evaluate.rescale=dynamic changes nothing for pos.scheme=rope up to its longest evaluation",
    ),
    "a factor that is no number": (
        ["evaluate.rescale=[none,pi]", "evaluate.rescale_factor=nan"],
        "evaluate.rescale_factor",
    ),
    "a missing text": (["data=text", "data.path=nowhere.txt"], "nowhere.txt"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_run_is_one_line_and_status_2(case, tmp_path):
    arguments, line = REFUSED[case]
    ended = command(*arguments, cwd=tmp_path)
    assert ended.returncode == 2
    assert line in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.rglob("manifest.json"))


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"", "empty"), (b"\x00\x01\x02" * 5000, "binary"), (b"short", "shorter|needs")],
)
def test_a_text_that_cannot_serve_is_one_line(content, line, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=line) as raised:
        plan(request(data={"source": "text", "path": str(path), "vocabulary": "bytes"}), tmp_path / "runs")
    assert "\n" not in str(raised.value)


def test_help_is_quick_to_read(tmp_path):
    ended = command("--help", cwd=tmp_path)
    assert ended.returncode == 0
    assert "python train.py -m pos=rope,alibi" in ended.stdout
    assert "pos: alibi, fire, fox" in ended.stdout


def test_identity_is_what_decides(tmp_path):
    def name(**changes):
        return plan(request(**changes), tmp_path).directory.name

    same = name()
    assert name() == same
    assert name(logger={"name": "wandb", "project": "poslab", "checkpoints": True}) == same
    if not torch.cuda.is_available():
        assert name(trainer__accelerator="auto") == same  # what auto means here
    others = [name(seed=1), name(pos__base=500.0), name(trainer__max_steps=21), name(data__seed=1)]
    assert len({same, *others}) == 5
    # the same base in another spelling is the same model
    assert name(pos__base=500) == name(pos__base=500.0)


def test_the_same_run_under_another_name_is_found_again(tmp_path):
    job = plan(request(pos__base=500.0), tmp_path)
    assert make(request(pos__base=500.0), tmp_path)["status"] == "done"
    other = replace(request(pos__base=500), pos="rope_500")
    assert plan(other, tmp_path).directory == job.directory
    assert plan(other, tmp_path).settled


def test_another_schemes_code_does_not_change_a_runs_identity(monkeypatch):
    def read(path):
        content = original(path)
        return content + b"\n# changed" if str(path).endswith(f"/{changed}") else content

    original = Path.read_bytes
    before = code_fingerprints(request().config)
    monkeypatch.setattr(Path, "read_bytes", read)
    # Logger, launcher and display decide no result: finished runs stay valid.
    for changed in ("alibi.py", "softmax.py", "run_bar.py", "request.py", "slurm.py", "send/run.py"):
        assert code_fingerprints(request().config) == before, changed
    for changed in ("rope.py", "flash.py"):
        now = code_fingerprints(request().config)
        assert now == replace(before, parts=now.parts), changed
        assert now.parts != before.parts, changed
    for changed in (
        "extrapolation.py",
        "retrieval.py",
        "inspection.py",
    ):  # the trained model stays what it is
        now = code_fingerprints(request().config)
        assert now == replace(before, evaluation=now.evaluation), changed
        assert now.evaluation != before.evaluation, changed
    for changed in ("gpt.py", "losses.py", "module.py", "loop.py", "windows.py", "schema.py", "rescaling.py"):
        assert code_fingerprints(request().config).shared != before.shared, changed


def test_all_that_training_and_evaluation_import_is_fingerprinted():
    """Whatever Python loads for them is in the closure that is read from the sources."""
    for modules in (TRAINING, EVALUATION):
        code = (
            f"import importlib, json, sys\nfor name in {modules!r}: importlib.import_module(name)\n"
            "print(json.dumps([name for name in sys.modules if name.startswith('poslab.')]))"
        )
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        packages = {name.rpartition(".")[0] for name in json.loads(told.stdout)}
        loaded = {name for name in json.loads(told.stdout) if name not in packages}
        assert loaded <= sources(modules).keys(), loaded - sources(modules).keys()


def test_a_module_that_is_missing_from_the_fingerprint_is_an_error():
    with pytest.raises(FileNotFoundError, match=r"poslab\.training\.moved"):
        sources(["poslab.training.moved"])


def test_a_change_of_the_evaluation_measures_again_and_trains_nothing(tmp_path, monkeypatch):
    first = make(request(), tmp_path)
    original = identity.sources
    changed = tmp_path / "changed.py"
    changed.write_text("# another evaluation\n")
    monkeypatch.setattr(
        identity,
        "sources",
        lambda modules: (
            original(modules) | ({"poslab.evaluation.inspection": changed} if modules == EVALUATION else {})
        ),
    )
    job = plan(request(), tmp_path)
    assert job.standing.outdated
    assert not job.settled
    monkeypatch.setattr(LanguageModel, "training_step", None)  # a step would fail
    again = make(request(), tmp_path)
    assert again["status"] == "done"
    assert again["files"] == first["files"]
    assert again["code_evaluation"] != first["code_evaluation"]
    assert plan(request(), tmp_path).settled


@pytest.mark.parametrize("path", sorted((ROOT / "sweeps").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_sweep_names_its_study_and_what_it_varies(path, tmp_path):
    told = command(f"sweep={path.stem}", "--cfg", "all", cwd=tmp_path).stdout
    assert f"\nstudy: {path.stem}\n" in told
    assert "mode: MULTIRUN" in told
    of_mine = command(f"sweep={path.stem}", "model=micro", "study=mine", "--cfg", "job", cwd=tmp_path).stdout
    assert "\nstudy: mine\n" in of_mine
    assert "max_steps: 5000\n" in of_mine  # the size for a GPU: its budget and its length too
    assert "context_length: 512\n" in of_mine


def test_a_run_is_made_by_one_process_at_a_time(tmp_path):
    job = plan(request(), tmp_path)
    job.directory.parent.mkdir(parents=True)
    with (job.directory.parent / f".{job.directory.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(TakenError):
            make(request(), tmp_path)
    assert make(request(), tmp_path)["status"] == "done"


def test_local_paths_stay_on_the_machine(tmp_path):
    path = tmp_path / "private" / "text.txt"
    path.parent.mkdir()
    path.write_text("all work and no play makes a dull boy. " * 3000)
    data = {"source": "text", "path": str(path), "vocabulary": "bytes"}
    manifest = make(request(data=data), tmp_path / "runs")
    assert manifest["status"] == "done"
    assert manifest["config"]["data"]["path"] == "text.txt"
    assert "private" not in json.dumps(manifest)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine's GPU is what auto means")
def test_another_machines_gpus_are_not_guessed(tmp_path):
    asked = request(trainer__accelerator="auto", launcher=arms(CONF / "launcher")["slurm"])
    with pytest.raises(ConfigError, match="accelerator=cuda or cpu"):
        plan(asked, tmp_path, here=False)
    asked = request(trainer__accelerator="cuda", launcher=arms(CONF / "launcher")["slurm"])
    with pytest.raises(ConfigError, match="sees no CUDA device"):
        plan(asked, tmp_path)
    trainer = plan(asked, tmp_path, here=False).config.trainer
    assert (trainer.accelerator, trainer.precision) == ("cuda", "bfloat16")


def test_what_is_planned_is_what_a_process_is_told(tmp_path):
    for asked in (request(), request(evaluate__rescale=["none", "pi"], evaluate__longest="auto")):
        job = plan(asked, tmp_path)
        told = json.loads(request_text(job))
        again = plan(Request(check(Config, told["config"], ""), told["pos"], told["attention"]), tmp_path)
        assert (again.identity, again.directory, again.config) == (job.identity, job.directory, job.config)
