"""A trained model loads from its run and, bit for bit, from safetensors; incomplete files are refused."""

import json
import shutil

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import poslab
from poslab.record.manifest import damaged_files, read_manifest
from poslab.record.study_list import StudyList, write_study_list
from poslab.study.run.plan import plan
from support.checkpoints import rewrite_weights
from support.commands import called
from support.models import POSITIONS
from support.runs import make, request

TINY = {"trainer__max_steps": 4, "trainer__warmup_steps": 1, "evaluate__longest": 1}
TOKENS = torch.arange(24)[None] % 30


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The directories of two trained runs: T5's bias has parameters, FoX has some in each layer."""
    folder = tmp_path_factory.mktemp("runs")
    wanted = [request(pos=POSITIONS[pos], **TINY) for pos in ("t5", "fox")]
    for each in wanted:
        assert make(each, folder).status == "done"
    return [plan(each, folder).directory for each in wanted]


def test_an_exported_model_equals_the_runs_bit_for_bit_in_any_library(runs, tmp_path):
    for directory in runs:
        model = poslab.load(poslab.RunDirectory(directory))  # as returned by `train`
        assert torch.equal(model(TOKENS), poslab.load(str(directory / "checkpoint.pt"))(TOKENS))
        path = poslab.export(directory, tmp_path / f"{model.scheme.name}.safetensors")
        again = poslab.load(path)
        assert not model.training
        assert not again.training
        assert torch.equal(again(TOKENS), model(TOKENS))
        for found in (again.state_dict(), load_file(path)):
            assert found.keys() == model.state_dict().keys()
            for name, tensor in model.state_dict().items():
                assert torch.equal(found[name], tensor), name
                assert found[name].dtype == tensor.dtype
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
        assert metadata["format"] == "pt"
        facts, manifest = json.loads(metadata["poslab"]), read_manifest(directory)
        assert facts["config"] == manifest.config
        assert (facts["run"], facts["identity"]) == (manifest.run, manifest.identity)
        assert manifest.untrained_from == model.scheme.untrained_from


def test_tensors_that_share_memory_are_each_written(runs, tmp_path):
    """As if a scheme gave two layers one table; safetensors itself refuses such weights."""
    names = [f"blocks.{layer}.norm_attention.weight" for layer in (0, 1)]

    def shared(saved):
        saved["weights"][names[1]] = saved["weights"][names[0]]
        return saved

    other = shutil.copytree(runs[0], tmp_path / runs[0].name)
    rewrite_weights(other, shared)
    again = poslab.load(poslab.export(other)).state_dict()
    assert torch.equal(again[names[1]], poslab.load(runs[0]).state_dict()[names[0]])


def test_the_command_exports_beside_the_checkpoint_and_leaves_the_run_valid(runs, tmp_path):
    study = tmp_path / "runs" / "test"
    shutil.copytree(runs[0], study / runs[0].name)
    ended = called("export", f"checkpoint={study / runs[0].name}", cwd=tmp_path)
    path = study / runs[0].name / "model.safetensors"
    assert ended.stdout.startswith(f"{path}, ")
    assert torch.equal(poslab.load(path)(TOKENS), poslab.load(runs[0])(TOKENS))
    manifest = read_manifest(path.parent)
    assert not damaged_files(path.parent, manifest.files)
    content = path.read_bytes()
    path.unlink()  # it can be deleted to free the space
    assert not damaged_files(path.parent, manifest.files)
    path.write_bytes(content)
    write_study_list(study, StudyList("test", (runs[0].name,)))
    called("clean", "study=test", f"run={runs[0].name}", "yes=true", cwd=tmp_path)
    assert not path.parent.exists()  # it is removed with its run


def test_files_that_are_not_models_of_a_run_are_refused_in_one_line(runs, tmp_path):
    foreign = tmp_path / "foreign.safetensors"
    save_file({"a": torch.zeros(3)}, foreign)
    cut = poslab.export(runs[0], tmp_path / "cut.safetensors")
    cut.write_bytes(cut.read_bytes()[:-1])
    damaged = tmp_path / "damaged" / runs[0].name
    shutil.copytree(runs[0], damaged)
    (damaged / "checkpoint.pt").write_bytes(b"nothing")
    for make_one, message in (
        (lambda: poslab.load(foreign), "was not written by poslab"),
        (lambda: poslab.load(cut), "cut.safetensors cannot be read"),
        (lambda: poslab.load(tmp_path / "none.safetensors"), "cannot be read"),
        (lambda: poslab.load(tmp_path / "nowhere"), "does not exist: name a run directory"),
        (lambda: poslab.load(tmp_path), "is not the folder of a finished run: name a run directory"),
        (lambda: poslab.load(runs[0] / "manifest.json"), "is not a run: name a run directory"),
        (lambda: poslab.export(damaged), "is damaged"),
        (lambda: poslab.export(runs[0], tmp_path / "model.bin"), "must end in .safetensors"),
    ):
        with pytest.raises(poslab.ConfigError, match=message) as refused:
            make_one()
        assert "\n" not in str(refused.value)
