"""Runs that continue from a finished one, `from=RUN`."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from poslab import compose
from poslab.config.schema import ConfigError
from poslab.record.manifest import read_manifest
from poslab.study.display.run_bar import RunDisplay
from poslab.study.execute import run_study
from poslab.study.run.execute import run
from poslab.study.run.plan import plan
from poslab.study.run.stopping import Stopper
from support.commands import read
from support.models import POSITIONS
from support.runs import assert_equal_results, make, request, stopped_at, validation_losses
from support.texts import options, trained_tokenizer, words

SHORT = {"trainer__max_steps": 2, "trainer__warmup_steps": 1}
LOCAL = ("logger=local", "trainer.accelerator=cpu")


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """Two finished runs, of RoPE with 40 steps and of learned positions, and their folder."""
    runs = tmp_path_factory.mktemp("sources") / "runs"
    rope = request("base", trainer__max_steps=40, trainer__warmup_steps=4, seed=3)
    learned = replace(request("base", pos=POSITIONS["learned"], **SHORT), pos="learned")
    names = [make(each, runs).run for each in (rope, learned)]
    return SimpleNamespace(runs=runs, rope=runs / "base" / names[0], learned=runs / "base" / names[1])


def ask(*overrides: str, runs: Path):
    """Return the request of a command with these settings."""
    return compose(*LOCAL, f"runs={runs}", *overrides)


def test_settings_not_named_are_those_of_the_source(bases):
    source = read_manifest(bases.rope)
    got = ask(
        f"from={bases.rope}", "context_length=64", "trainer.max_steps=20", "pos.base=5e5", runs=bases.runs
    )
    settings, recorded = got.config.result_settings(), source.config
    for section in ("attention", "data", "model", "probe"):
        assert settings[section] == recorded[section]
    assert settings["trainer"] == {
        **recorded["trainer"],
        **{key: settings["trainer"][key] for key in ("precision", "compile")},
        "max_steps": 20,
        "warmup_steps": 2,  # a tenth, as in the source
    }
    assert settings["evaluate"]["validations"] == recorded["evaluate"]["validations"]
    assert (got.config.seed, got.config.context_length) == (3, 64)
    assert (got.pos, settings["pos"]) == ("rope base=500000", {**recorded["pos"], "base": 5e5})
    assert (got.start.run, got.start.steps, got.start.context_length) == (source.run, 40, 32)
    other = ask(f"from=base/{bases.rope.name}", "data=copy", "data.tokens=50000", "seed=1", runs=bases.runs)
    assert (other.config.seed, other.config.data["tokens"]) == (1, 50_000)


def test_it_begins_with_the_loss_and_weights_of_the_source(bases, tmp_path):
    wanted = ask(f"from={bases.rope}", "trainer.max_steps=5", runs=bases.runs)
    manifest = make(wanted, tmp_path)
    before = manifest.origin.validation_nll / manifest.origin.validation_tokens
    *_, last = validation_losses(bases.rope / "metrics.csv").values()
    first, *_ = validation_losses(plan(wanted, tmp_path).directory / "metrics.csv").values()
    assert before == pytest.approx(last, rel=1e-6)
    assert first == pytest.approx(last, rel=0.05)  # after a step
    assert manifest.origin.steps == 40
    assert str(bases.runs) not in manifest.model_dump_json()


def test_a_stopped_run_resumes_to_the_same_bits_without_its_source(bases, tmp_path):
    sources = tmp_path / "sources"
    shutil.copytree(bases.runs, sources)
    longer = ("context_length=64", "trainer.max_steps=10", "trainer.checkpoint_seconds=0")
    wanted = ask(f"from=base/{bases.rope.name}", *longer, runs=sources)
    whole = plan(wanted, tmp_path / "whole")
    assert make(wanted, tmp_path / "whole").status == "done"
    stopped = stopped_at(6, wanted, tmp_path / "stopped")
    (sources / "base" / bases.rope.name / "checkpoint.pt").unlink()
    manifest = run(stopped, RunDisplay("goes on"), Stopper())
    assert manifest.origin == read_manifest(whole.directory).origin
    assert_equal_results(whole.directory, stopped.directory)


def test_its_identity_includes_that_of_the_source(bases, tmp_path):
    wanted = ask(f"from={bases.rope}", "trainer.max_steps=5", runs=bases.runs)
    start = wanted.start
    others = [
        wanted,
        replace(wanted, start=None),
        replace(wanted, start=replace(start, identity="0" * 12)),
        replace(wanted, start=replace(start, checkpoint="0" * 64)),
    ]
    assert len({plan(each, tmp_path).identity for each in others}) == 4
    elsewhere = replace(wanted, start=replace(start, directory="/elsewhere"))
    assert plan(elsewhere, tmp_path).identity == plan(wanted, tmp_path).identity


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.width=64"], "model.width=64: .* was trained with 32"),
        (["pos=rope_learned"], "pos.scheme=rope_learned: .* was trained with rope.*leave pos out"),
        (["pos.pairing=interleaved"], "pos.pairing=interleaved: .* was trained with half"),
        (["data.vocabulary=300"], "data.vocabulary=300: .* was trained with bytes"),
        (["tune=learning_rate"], "tune and from"),
        (["task=copy"], "model.width=64: .* was trained with 32, .*: leave task out"),
    ],
)
def test_settings_fixed_by_training_cannot_be_changed(bases, settings, message):
    with pytest.raises(ConfigError, match=message):
        ask(f"from={bases.rope}", *settings, runs=bases.runs)


def test_another_text_needs_the_same_tokenizer(tmp_path):
    file = trained_tokenizer(tmp_path / "mine.json", [words(300, 0)])
    text = options("copy", tokens=60_000, vocabulary=str(file))
    source = tmp_path / "runs" / "base" / make(request("base", data=text, **SHORT), tmp_path / "runs").run
    other = (f"from={source}", "data=copy", "data.tokens=60000", "data.seed=1", f"data.vocabulary={file}")
    assert plan(ask(*other, runs=tmp_path / "runs"), tmp_path / "runs").corpus.vocabulary > 256
    trained_tokenizer(file, [words(300, 1).upper()])
    with pytest.raises(ConfigError, match=r"mine.json is not the tokenizer in the record of") as raised:
        plan(ask(*other, runs=tmp_path / "runs"), tmp_path / "runs")
    assert "\n" not in str(raised.value)


def test_a_rotation_may_change_but_learned_positions_keep_their_length(bases, tmp_path):
    turned = ask(f"from={bases.rope}", "pos=rope_yarn", "context_length=64", runs=bases.runs)
    assert plan(turned, tmp_path).config.pos["scheme"] == "rope_yarn"
    longer = ask(f"from={bases.learned}", "context_length=64", "trainer.max_steps=2", runs=bases.runs)
    with pytest.raises(ConfigError, match=r"a vector for each of 32 positions .* choose context_length=32"):
        plan(longer, tmp_path)
    same = ask(f"from={bases.learned}", "trainer.max_steps=2", runs=bases.runs)
    assert (same.pos, plan(same, tmp_path).config.pos["scheme"]) == ("learned", "learned")


def test_the_source_has_the_windows_and_starts_of_its_own_length(tmp_path):
    settings = {"model__layers": 4, **SHORT, "pos": POSITIONS["as_inkling"]}
    source = make(replace(request("base", **settings), pos="as_inkling"), tmp_path)
    begun = f"from=base/{source.run}"
    taken = ask(begun, "context_length=64", runs=tmp_path)
    assert (taken.pos, taken.config.pos) == ("as_inkling", source.config["pos"])
    near, far = (taken.config.pos["schemes"][name] for name in ("near", "far"))
    assert (near["window"], far["start"]) == (8, 32)
    assert ask(begun, "pos=as_inkling", runs=tmp_path).pos == "as_inkling"  # the same positions
    with pytest.raises(ConfigError, match=r"start=64: .* was trained with 32, .*: leave pos out"):
        ask(begun, "pos=as_inkling", "context_length=64", runs=tmp_path)


def test_a_missing_source_is_named(bases):
    with pytest.raises(ConfigError, match=r"from=base/nothing is not a run: .* base/"):
        ask("from=base/nothing", runs=bases.runs)


def test_a_damaged_source_is_not_used(bases, tmp_path):
    shutil.copytree(bases.runs, tmp_path / "sources")
    source = tmp_path / "sources" / "base" / bases.rope.name
    wanted = ask(f"from={source}", "trainer.max_steps=5", runs=tmp_path / "sources")
    weights = source / "checkpoint.pt"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    manifest = make(wanted, tmp_path / "runs")
    assert (manifest.status, manifest.files) == ("failed", {})
    assert "checkpoint.pt is damaged" in manifest.reason
    (source / "manifest.json").write_text("{}")
    with pytest.raises(ConfigError):
        ask(f"from={source}", runs=tmp_path / "sources")


def test_a_study_of_such_runs_names_its_source(bases, tmp_path, capsys):
    longer = ("study=longer", "context_length=64", "trainer.max_steps=5", "launcher=inline")
    places = (f"from={bases.rope}", f"reports={tmp_path / 'reports'}")
    requests = [ask(*places, *longer, f"pos.base={base}", runs=tmp_path / "runs") for base in ("1e4", "5e5")]
    of_others = tmp_path / "runs" / "longer" / "wandb" / "offline-run-1"  # of a command with logger=wandb
    of_others.mkdir(parents=True)
    for expected in ("2 runs to start", "not repeated: 2 of 2 runs"):
        assert run_study(requests, "a command") == 0
        shown = capsys.readouterr().err
        assert expected in shown
        assert "W&B" not in shown
    facts = [(row["key"], row["value"]) for row in read(tmp_path / "reports" / "longer" / "facts.csv")]
    assert ("from_run", bases.rope.name) in facts
    assert ("from_steps", "40") in facts
    assert any(key == "configuration.from" and "rope at L 32 for 40 steps" in value for key, value in facts)
    markdown = (tmp_path / "reports" / "longer" / "report.md").read_text()
    assert f"{bases.rope.name} of study base, after 40 steps at L = 32" in markdown
