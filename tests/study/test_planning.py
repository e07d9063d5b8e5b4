"""Results that planning remembers between commands equal those that it would compute again."""

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from poslab.config.checking import check
from poslab.config.request import Config
from poslab.config.schema import ConfigError, PairError
from poslab.model.attention.flash import Flash
from poslab.model.positions.rope import RoPE
from poslab.record.remembered import Remembered
from poslab.study.launch import devices
from poslab.study.launch.devices import _has_driver, cuda_available, gpus
from poslab.study.run import parts
from poslab.study.run.budget import entries
from poslab.study.run.parts import check_parts
from poslab.study.run.plan import plan, resolve
from poslab.study.run.preparation import PARTS, Preparation
from poslab.study.run.preparation import checked as parts_checked
from support.commands import ROOT, called, imported, python, tiny
from support.models import ATTENTIONS, SCHEMES
from support.records import contents
from support.runs import own_cache, request

SLOW = {"torch", "pytorch_lightning", "datasets", "tokenizers", "wandb"}
STUDY = ("-m", "pos=rope,kerple", *tiny(attention="linear", launcher="inline"))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = own_cache(tmp_path / "cache")
    monkeypatch.setenv("POSLAB_CACHE", str(folder))
    return folder


def test_a_finished_study_imports_no_pytorch_and_writes_the_same_report(tmp_path, cache):
    """With W&B (offline), and with an impossible pair."""
    first = called(*STUDY, cwd=tmp_path, status=1)
    assert "kerple / linear / seed 0" in first.stderr.splitlines()[-1], first.stderr
    written = contents(tmp_path / "reports")
    undrawn = (
        "import runpy, sys; from support import forks; sys.meta_path.insert(0, forks.Undrawn()); "
        "del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = ("-X", "importtime", "-c", undrawn, str(ROOT / "train.py"), *STUDY)
    again = python(*command, cwd=tmp_path, status=1, PYTHONPATH=f"{ROOT / 'src'}:{ROOT / 'tests'}")
    assert again.stdout == first.stdout
    assert "not repeated: 1 of 1 run" in again.stderr
    assert "poslab" in imported(again)
    assert not SLOW & imported(again)
    assert contents(tmp_path / "reports") == written


def test_a_remembered_check_equals_a_new_one(cache):
    """For every scheme, with all attentions in turn: the same settings or the same refusal."""
    refused = 0
    for (name, section), attention in zip(SCHEMES.items(), itertools.cycle(ATTENTIONS.values())):
        config = resolve(request(pos=section, attention=attention, model__layers=4, context_length=64).config)
        try:
            outcome = check_parts(config, entries(config))
            whole = {name: checked for name, checked in outcome.items() if name in PARTS}
            expected: object = check(Config, {**config.model_dump(mode="json"), **whole}, "")
        except PairError as error:
            expected = str(error)
            refused += 1
        for _ in range(2):  # built, then remembered
            try:
                checked: object = parts_checked(config, Preparation())[0]
            except PairError as error:
                checked = str(error)
            assert checked == expected, name
    assert 3 <= refused <= len(SCHEMES) / 2


def test_a_check_runs_once_for_the_same_settings_and_code(tmp_path, cache, monkeypatch):
    checked = []

    def counting(config, vocabulary):
        checked.append(config)
        return check_parts(config, vocabulary)

    monkeypatch.setattr(parts, "check_parts", counting)
    first = plan(request(), tmp_path)
    for same in (request(), request(seed=1), request(trainer__max_steps=7)):
        plan(same, tmp_path)
    again = plan(request(), tmp_path)
    assert replace(again, corpus=first.corpus) == first
    assert len(checked) == 1
    assert checked[0].model_fields_set == set(PARTS)
    with pytest.raises(AttributeError):
        _ = checked[0].trainer
    for other in (request(pos__base=500.0), request(context_length=16), request(model__heads=1)):
        plan(other, tmp_path)
    assert len(checked) == 4
    original = Path.read_bytes
    monkeypatch.setattr(
        Path,
        "read_bytes",
        lambda path: original(path) + (b"\nCHANGED = 1" if path.name == "rope.py" else b""),
    )
    plan(request(), tmp_path)
    assert len(checked) == 5
    monkeypatch.setattr(Path, "read_bytes", original)
    for damaged in (b"", b"{}", original(cache / "planning/parts.json").replace(b"rope", b"nope")):
        (cache / "planning/parts.json").write_bytes(damaged)
        assert plan(request(), tmp_path).config == first.config


@pytest.mark.parametrize(("part", "method"), [(RoPE, "embed"), (Flash, "attend")])
def test_a_part_that_is_not_causal_is_refused(part, method, tmp_path, cache, monkeypatch):
    own = getattr(part, method)

    def leaking(self, *arguments):
        output = own(self, *arguments)
        return output + output.roll(-1, dims=-2)

    monkeypatch.setattr(part, method, leaking)
    with pytest.raises(ConfigError, match=r"pos\.scheme=rope and attention\.kind=flash, a token"):
        plan(request(), tmp_path)
    masked = {"kind": "masked", "share": 0.3, "replaced": 0.1, "kept": 0.1}
    plan(request(objective=masked, attention=ATTENTIONS["softmax"]), tmp_path)


def test_the_newest_values_are_remembered_and_lost_ones_are_recomputed(tmp_path):
    path = tmp_path / "values.json"
    values = Remembered(path, 3)
    for name in "abcde":
        values.put(name, {"of": name})
    values.save()
    assert [Remembered(path, 3).get(name) for name in "bc"] == [None, {"of": "c"}]
    path.unlink()
    path.mkdir()  # it cannot be written, and nothing is printed
    lost = Remembered(path, 3)
    lost.put("a", 1)
    lost.save()
    assert lost.get("a") == 1
    assert [left.name for left in tmp_path.iterdir()] == ["values.json"]


def test_a_gpu_is_found_if_pytorch_finds_it(monkeypatch):
    """Without a driver PyTorch is not imported to check, since a study's runs would wait for that."""
    assert cuda_available() == torch.cuda.is_available()
    assert _has_driver() or not torch.cuda.is_available()
    monkeypatch.setattr(devices, "_has_driver", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with monkeypatch.context() as early:
        early.delitem(sys.modules, "torch")
        early.setattr(sys, "meta_path", [])  # an import would be an error
        assert gpus() == ()
