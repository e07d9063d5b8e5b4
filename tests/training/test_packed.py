"""`data.windows=packed`: the windows of `joined`, in which no document sees another."""

import itertools

import pytest
import torch

from poslab.config.schema import ConfigError
from poslab.data.cache import prepare
from poslab.model.gpt import build
from poslab.study.run.plan import plan, resolve
from poslab.training.batches import TrainingBatches
from poslab.training.module import LanguageModel
from support.models import ATTENTIONS, POSITIONS
from support.runs import request
from support.texts import options, write_short_documents


@pytest.fixture
def text(tmp_path):
    return options("text", path=str(write_short_documents(tmp_path / "short")))


def training(text, windows="packed", **changes):
    config = request(data={**text, "windows": windows}, trainer__batch_size=16, **changes).config
    return config, prepare(config.data)


@pytest.mark.parametrize(
    ("pos", "attention"), [("rope", "flash"), ("learned", "softmax"), ("t5", "linear"), ("fox", "flash")]
)
def test_the_step_equals_that_on_separate_documents(text, pos, attention):
    """Loss and gradients compared with the model on each part of a document, cut from the joined windows."""
    parts = {"pos": POSITIONS[pos], "attention": ATTENTIONS[attention]}
    config, corpus = training(text, **parts)
    joined = TrainingBatches(training(text, "joined", **parts)[0], corpus)[2]
    batch = TrainingBatches(config, corpus)[2]
    assert batch.digest == joined.digest
    assert batch.scored == joined.scored == 16 * 32

    gpt = build(config, corpus.vocabulary).double()
    gpt.initialise(0)
    losses = []
    for tokens, targets in zip(joined.tokens, joined.targets, strict=True):
        cuts = [0, *(index for index in range(1, 32) if tokens[index] == corpus.separator), 32]
        for first, stop in itertools.pairwise(cuts):
            logits = gpt(tokens[None, first:stop])[0]
            losses.append(torch.nn.functional.cross_entropy(logits, targets[first:stop], reduction="sum"))
    assert len(losses) > 1.2 * 16
    (sum(losses) / (16 * 32)).backward()
    wanted = [parameter.grad.clone() for parameter in gpt.parameters()]

    gpt.zero_grad()
    LanguageModel(gpt, config.trainer, config.seed).training_step(batch, 0).backward()
    for parameter, gradient in zip(gpt.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-5, atol=1e-9)


def test_a_varying_number_of_rows_is_not_compiled(text, tmp_path, monkeypatch):
    packed = {**text, "windows": "packed"}
    with pytest.raises(ConfigError, match=r"trainer\.compile=false"):
        plan(request(data=packed, trainer__compile=True), tmp_path)
    monkeypatch.setattr("poslab.study.run.plan.cuda_available", lambda: True)
    for data, compiled in ((packed, False), (text, True)):
        config = request(data=data, trainer__max_steps=2_000, trainer__accelerator="auto").config
        assert resolve(config).trainer.compile is compiled
