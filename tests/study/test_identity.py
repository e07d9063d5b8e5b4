"""What the identity of a run depends on, and when a finished run is repeated."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from poslab.config.compose import arms
from poslab.config.schema import ConfigError
from poslab.study.run import plan as plans
from poslab.study.run import worker
from poslab.study.run.identity import TRAINING, code_fingerprints, measuring, sources
from poslab.study.run.plan import plan
from poslab.study.run.stopping import Stopper
from poslab.study.run.worker import request_file, request_text
from poslab.training.module import LanguageModel
from support.commands import environment
from support.forks import forked
from support.models import CONF
from support.runs import make, request


def test_the_identity_depends_on_everything_that_affects_results(tmp_path):
    def name(**changes):
        return plan(request(**changes), tmp_path).directory.name

    same = name()
    assert name() == same
    assert name(logger={"name": "wandb", "project": "poslab", "checkpoints": True}) == same
    assert name(reference="rope", primary="loss_4x") == same
    if not torch.cuda.is_available():
        assert name(trainer__accelerator="auto") == same  # the value of auto here
    others = [name(seed=1), name(pos__base=500.0), name(trainer__max_steps=21), name(data__seed=1)]
    assert len({same, *others}) == 5
    # the same base in another notation is the same model
    assert name(pos__base=500) == name(pos__base=500.0)


@pytest.mark.parametrize(
    ("setting", "default", "other"),
    [
        ("trainer__optimizer", "adamw", "muon"),
        ("objective", {"kind": "causal"}, arms(CONF / "objective")["masked"]),
        ("model__norm", "layer", "rms"),
        ("evaluate__documents", "single", "joined"),
        ("evaluate__needles", 0, 2),
    ],
)
def test_a_default_that_older_records_lack_is_not_in_the_identity(setting, default, other, tmp_path):
    plain, changed = (
        plan(request(**{setting: value, "context_length": 128}), tmp_path) for value in (default, other)
    )
    *section, name = setting.split("__")
    for job, named in ((plain, False), (changed, True)):
        config = job.facts["config"]
        assert (name in (config[section[0]] if section else config)) == named
    assert changed.identity != plain.identity == plan(request(context_length=128), tmp_path).identity
    assert changed.facts["code"] == plain.facts["code"]


def test_another_schemes_code_does_not_change_a_runs_identity(monkeypatch):
    def read(path):
        content = original(path)
        return content + addition if str(path).endswith(f"/{changed}") else content

    original = Path.read_bytes
    addition = b"\nCHANGED = 1"
    before = code_fingerprints(request().config)
    monkeypatch.setattr(Path, "read_bytes", read)
    # Logger, launcher and display do not affect results, so finished runs stay valid.
    for changed in ("alibi.py", "softmax.py", "run_bar.py", "request.py", "slurm.py", "send/run.py"):
        assert code_fingerprints(request().config) == before, changed
    for changed in ("rope.py", "flash.py"):
        now = code_fingerprints(request().config)
        assert now == replace(before, parts=now.parts), changed
        assert now.parts != before.parts, changed
    for changed in ("extrapolation.py", "inspection.py"):  # the trained model stays valid
        now = code_fingerprints(request().config)
        assert now == replace(before, evaluation=now.evaluation), changed
        assert now.evaluation != before.evaluation, changed
    for changed in ("gpt.py", "losses.py", "module.py", "loop.py", "windows.py", "schema.py", "rescaling.py"):
        assert code_fingerprints(request().config).shared != before.shared, changed
        addition = b"\n# a remark"
        assert code_fingerprints(request().config) == before, changed
        addition = b"\nCHANGED = 1"


def test_all_imports_of_training_and_evaluation_are_fingerprinted(tmp_path):
    """All modules that Python loads for them are in the closure, except those that only show results."""
    script = tmp_path / "script.py"
    script.write_text(
        "import importlib, json, sys\n"
        "for names in json.loads(sys.argv[1]):\n"
        "    for name in names: importlib.import_module(name)\n"
        "    print(json.dumps([name for name in sys.modules if name.startswith('poslab.')]))"
    )
    shows = ["poslab.report.study_tables", "poslab.report.verdict"]
    argument = json.dumps([TRAINING, shows, measuring()])
    ended = forked([str(script), argument], tmp_path, environment(tmp_path), timeout=100)
    assert ended.returncode == 0, ended.stderr
    read = set()
    for modules, line in zip((TRAINING, shows, measuring()), ended.stdout.splitlines(), strict=True):
        packages = {name.rpartition(".")[0] for name in json.loads(line)}
        loaded = {name for name in json.loads(line) if name not in packages}
        read |= loaded if modules is shows else sources(modules).keys()
        assert loaded <= read, loaded - read


def test_a_change_of_the_evaluation_measures_again_and_trains_nothing(tmp_path, monkeypatch):
    first = make(request(), tmp_path)
    own = plans.code_fingerprints
    monkeypatch.setattr(plans, "code_fingerprints", lambda run: replace(own(run), evaluation="0" * 16))
    job = plan(request(), tmp_path)
    assert job.run_status.outdated
    assert not job.settled
    monkeypatch.setattr(LanguageModel, "training_step", None)  # a step would fail
    again = make(request(), tmp_path)
    assert again.status == "done"
    assert again.files == first.files
    assert again.code_evaluation != first.code_evaluation
    assert plan(request(), tmp_path).settled


def test_a_process_runs_the_planned_run_and_none_if_its_file_changed_or_is_gone(tmp_path):
    job = plan(request(evaluate__rescale=["none", "pi"], evaluate__longest="auto"), tmp_path)
    path = tmp_path / request_file(job.directory).name
    with pytest.raises(ConfigError, match=f"{path.name} is missing"):
        worker._run_file(path, Stopper())
    path.write_text(request_text(job).replace("rope", "ropf", 1))
    with pytest.raises(ConfigError, match=f"{path.name} is damaged"):
        worker._run_file(path, Stopper())
    path.write_text(request_text(job))
    assert worker._run_file(path, Stopper()) == 0
    assert job.settled
