"""Forward hooks run on every module except schemes, untied `output`, and mixers' `decay` and `overwrite`."""

import pytest
import torch
from torch import nn

import poslab
import poslab.measures
from poslab.data.cache import prepare
from poslab.evaluation.extrapolation import evaluate
from poslab.measures import Measurement
from poslab.model.gpt import build
from poslab.training.loop import train
from support.models import ATTENTIONS, POSITIONS
from support.runs import Told, request


@pytest.mark.parametrize(
    ("pos", "attention"),
    [("rope", "flash"), ("alibi", "linear"), ("fox", "softmax"), ("rope", "performer")],
)
def test_a_hook_on_every_module_runs_in_training_and_in_evaluation(pos, attention):
    """For every called module; methods of a scheme are called directly, and a list contains the blocks."""
    steps = {"trainer__max_steps": 2, "trainer__warmup_steps": 1, "trainer__precision": "float32"}
    config = request(pos=POSITIONS[pos], attention=ATTENTIONS[attention], **steps).config
    corpus = prepare(config.data)
    gpt = build(config, corpus.vocabulary)
    called = {
        name
        for name, module in gpt.named_modules()
        if not (name.startswith("scheme") or isinstance(module, nn.ModuleList))
    }
    ran: dict[bool, set[str]] = {True: set(), False: set()}
    for name in called:
        note = lambda module, inputs, output, name=name: ran[module.training].add(name)  # noqa: E731
        gpt.get_submodule(name).register_forward_hook(note)
    train(gpt, config, corpus, Told())
    assert ran[True] == called
    ran[False].clear()  # of the validations
    evaluate(gpt, config, corpus)
    assert ran[False] == called
    assert {"embedding", "blocks.1.attention.query_key_value", "blocks.0.perceptron.expand", "norm"} < called


class Mode(Measurement):
    columns = ("training",)

    def measure(self, trained):
        yield {"training": torch.tensor(float(trained.gpt.training))}


def test_a_measurement_finds_the_model_in_evaluation_mode(tmp_path, monkeypatch):
    """So that effects of a user's mixer in training only, such as dropout, are not measured."""
    monkeypatch.setattr(poslab.measures, "measurements", lambda: (Mode(),))
    run = poslab.train(request(), tmp_path / "mine")
    assert (run.path / "test_hooks.csv").read_text() == "training\n0.0\n"
