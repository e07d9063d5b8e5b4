"""Objectives in training, evaluation and report: the masked one, and one of another package."""

import numpy as np
import pytest
import torch

from poslab.config.compose import arms
from poslab.config.registry import declared_modules
from poslab.config.schema import ConfigError
from poslab.data.cache import prepare
from poslab.evaluation.extrapolation import extrapolate
from poslab.evaluation.losses import token_losses
from poslab.model.gpt import build
from poslab.objectives import UNSCORED, build_objective
from poslab.objectives.causal import Causal
from poslab.record.manifest import read_manifest
from poslab.study.execute import run_study
from poslab.study.run.parts import check_parts
from poslab.study.run.plan import plan
from poslab.training.batches import TrainingBatches
from poslab.training.module import LanguageModel
from poslab.training.trained import load_model
from support.commands import read
from support.models import ATTENTIONS, CONF, POSITIONS, make_gpt
from support.packages import write_package
from support.runs import inline, make, request

MASKED = arms(CONF / "objective")["masked"]


@pytest.fixture
def package(tmp_path_factory, monkeypatch):
    monkeypatch.syspath_prepend(write_package(tmp_path_factory.mktemp("mine")))
    declared_modules.cache_clear()
    yield
    declared_modules.cache_clear()


@pytest.mark.parametrize("parts", [2, 4])
def test_the_loss_and_its_gradient_are_over_all_targets_for_any_microbatches(parts):
    """Microbatches have different numbers of masked tokens, and each counts by its targets."""
    losses, gradients = [], []
    for accumulate in (1, parts):
        config = request(objective=MASKED, trainer__accumulate=accumulate).config
        corpus = prepare(config.data)
        batches = TrainingBatches(config, corpus)
        torch.manual_seed(0)
        gpt = build(config, corpus.vocabulary)
        gpt.initialise(0)
        module = LanguageModel(gpt, config.trainer, config.seed)
        drawn = [batches[index] for index in range(accumulate)]
        for index, batch in enumerate(drawn):
            (module.training_step(batch, index) / accumulate).backward()
        assert len({batch.scored for batch in drawn}) == accumulate
        losses.append(float(module.nll_sum) / module.token_count)
        gradients.append(gpt.embedding.weight.grad)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-7)


def test_a_study_scores_the_same_masked_targets_in_every_arm_and_at_every_length(tmp_path):
    requests = [
        inline(tmp_path, pos, objective=MASKED, attention="softmax", evaluate__rescale=["none"])
        for pos in ("rope", "alibi")
    ]
    assert run_study(requests, "the command") == 0
    found = []
    for directory in sorted((tmp_path / "runs" / "test").glob("[!.]*-seed0-*")):
        table = read(directory / "extrapolation.csv")
        assert {row["protocol"] for row in table} == {"non_overlapping"}  # no end of a window is scored
        by_length = {}
        for row in table:
            by_length.setdefault(row["length"], []).append((row["segment"], row["tokens"], row["bytes"]))
        assert list(by_length) == ["16", "32", "64", "128"]
        assert len({tuple(scored) for scored in by_length.values()}) == 1
        found.append(by_length["32"])
        manifest = read_manifest(directory)
        assert manifest.config["objective"] == MASKED
        first = read(directory / "metrics.csv")[0]
        assert 0.2 < int(first["validation_tokens"]) / (4 * 32) < 0.4
        gpt = load_model(directory)
        assert gpt.embedding.num_embeddings == manifest.corpus.vocabulary + 1
        _nothing_leaks(gpt, manifest.corpus.vocabulary)
    assert len(found) == 2
    assert found[0] == found[1]
    page = (tmp_path / "reports" / "test" / "report.md").read_text()
    assert "alibi" in page
    assert "loss_4x" in (tmp_path / "reports" / "test" / "summary.csv").read_text()


def test_every_window_of_a_two_sided_model_is_run_separately():
    """The first half of a longer window has other losses than the same tokens as a window."""
    gpt = make_gpt(POSITIONS["rope"], ATTENTIONS["flash"], vocabulary=51, causal=False).eval()
    windows = np.random.default_rng(0).integers(0, 50, (2, 2 * 64 + 1))
    tokens, targets = build_objective(MASKED).of_evaluation(windows, 50)
    rows = extrapolate(gpt, tokens, targets, 32, 10, np.ones(50, dtype=np.int64)).lengths
    for row in rows:
        starts = range(64, 128, row["length"])
        cut = [slice(start, start + row["length"]) for start in starts]
        segment = row["segment"]
        arguments = (np.stack([each[segment, part] for part in cut]) for each in (tokens, targets))
        assert row["nll"] == pytest.approx(token_losses(gpt, *arguments).sum(), rel=1e-9)
    assert {row["length"] for row in rows} == {16, 32, 64}


def _nothing_leaks(gpt, vocabulary):
    """A masked token changes its target but not its prediction; a token after it changes the prediction."""
    windows = np.arange(2 * 33).reshape(2, 33) % vocabulary
    objective = build_objective(MASKED)
    tokens, targets = objective.of_evaluation(windows, vocabulary)
    place = np.argwhere((targets[0, :-1] != UNSCORED) & (tokens[0, :-1] == vocabulary))[0, 0]
    changed = windows.copy()
    changed[0, place] = (changed[0, place] + 1) % vocabulary
    again, other = objective.of_evaluation(changed, vocabulary)
    assert other[0, place] != targets[0, place]
    assert (again == tokens).all()
    later = torch.from_numpy(tokens.copy())
    later[0, -1] = (later[0, -1] + 1) % vocabulary
    with torch.no_grad():
        assert not torch.equal(gpt(later)[0, place], gpt(torch.from_numpy(tokens))[0, place])


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (
            lambda windows: (windows[:, 1:].repeat(2, 0),) * 2,
            r"targets of shape \(4, 32\).*must have shape \(2, 32\)",
        ),
        (lambda windows: (windows[:, 1:] + 200,) * 2, "from 201 to 265, but the model has 0 to 255"),
    ],
)
def test_invalid_examples_are_refused_before_training(examples, message, monkeypatch):
    monkeypatch.setattr(Causal, "examples", lambda self, windows, *_: examples(windows))
    with pytest.raises(ConfigError, match=message):
        check_parts(request().config, 256)


def test_masks_have_the_requested_shares_and_each_window_has_a_target():
    windows = np.random.default_rng(0).integers(0, 50, (400, 65))
    tokens, targets = build_objective(MASKED).of_step(windows, 50, seed=1, step=2)
    scored = targets != UNSCORED
    assert scored.mean() == pytest.approx(0.3, abs=0.01)
    assert (targets[scored] == windows[:, :-1][scored]).all()
    assert (tokens[~scored] == windows[:, :-1][~scored]).all()
    assert (tokens[scored] == 50).mean() == pytest.approx(0.8, abs=0.015)
    other = (tokens[scored] != 50) & (tokens[scored] != targets[scored])
    assert other.mean() == pytest.approx(0.1 * 49 / 50, abs=0.01)  # one in fifty is the same by chance
    hidden = tokens[scored] == 50
    assert hidden.any()
    rare, few = build_objective({**MASKED, "share": 1e-9}).of_evaluation(windows, 50)
    assert ((few != UNSCORED).sum(axis=1) == 1).all()
    assert rare.max() <= 50
    with pytest.raises(ConfigError, match="no token hidden"):
        build_objective({**MASKED, "replaced": 0.6, "kept": 0.4})


@pytest.mark.usefixtures("package")
def test_an_objective_of_another_package_trains(tmp_path):
    later = {"kind": "mine.later", "ahead": 2}
    job = plan(request(objective=later), tmp_path)
    assert make(request(objective=later), tmp_path).status == "done"
    assert read_manifest(job.directory).config["objective"] == later
    windows = np.arange(20).reshape(2, 10)
    tokens, targets = build_objective(later).of_evaluation(windows, 50)
    assert (targets[:, :-1] == tokens[:, :-1] + 2).all()
    assert (targets[:, -1] == UNSCORED).all()
    with pytest.raises(ConfigError, match="objective=causal or masked"):
        plan(request(objective=later, context_length=128, evaluate__needles=4), tmp_path)


@pytest.mark.usefixtures("package")
def test_a_task_of_another_package_trains_and_is_measured(tmp_path):
    sizes = {"shortest": 2, "longest": 4, "tested": 8, "samples": 3, "offset": False}
    asked = request(
        objective={"kind": "mine.double", **sizes},
        data=arms(CONF / "data")["none"],
        context_length=13,
        evaluate__longest=1,
    )
    assert make(asked, tmp_path).status == "done"
    found = read(plan(asked, tmp_path).directory / "task.csv")
    assert [(row["task"], row["size"]) for row in found] == [
        ("mine.double", str(size)) for size in range(2, 9)
    ]
    assert {row["tokens"] for row in found} == {str(3 * (2 * size + 1)) for size in range(2, 9)}
