"""Runs that cannot fit are refused, and no others. The messages: config/test_mistakes.py."""

from typing import Any

import pytest

from poslab import compose
from poslab.config.compose import arms
from poslab.study.launch.machine import Memory
from poslab.study.run.budget import BudgetError, Size, check_memory, size_of
from support.commands import ROOT, imported, python
from support.models import ATTENTIONS, CONF, budget
from support.runs import request

GIB = 2**30
LONG = {"context_length": 4096, "evaluate__longest": 16, "attention": ATTENTIONS["softmax"]}


def size(
    conf_model: str = "nano", max_length: int | None = None, trained: bool = False, **changes: Any
) -> Size:
    model, trainer = arms(CONF / "model")[conf_model], budget(conf_model)
    every = {
        "context_length": model["context_length"],
        "trainer__accelerator": "cpu",
        "trainer__precision": "float32",
        "trainer__compile": False,
        "evaluate__longest": 8,
        **changes,
    }
    evaluate = arms(CONF / "evaluate")["default"]
    config = request(model=model["model"], trainer=trainer, evaluate=evaluate, **every).config
    return size_of(config, 0, max_length, trained)


def machine_of(monkeypatch, memory: int, gpu: int | None = None) -> None:
    """Give this machine so many GiB."""
    has = Memory(memory * GIB, "this machine has")
    monkeypatch.setattr("poslab.study.run.budget.machine_memory", lambda: has)
    gpus = [] if gpu is None else [Memory(gpu * GIB, "the GPU has")]
    monkeypatch.setattr("poslab.study.run.budget.gpu_memory", lambda: gpus)


SOFTMAX = {"attention": ATTENTIONS["softmax"]}
ON_A_GPU = {"trainer__precision": "bfloat16", "trainer__compile": True, "trainer__accelerator": "cuda"}


@pytest.mark.parametrize(
    ("sizes", "memory", "gpu"),
    [
        (size(), 1, None),
        (size(trainer__batch_size=1024), 8, None),
        (size("micro", **ON_A_GPU), 1, 16),
        (size("small", **ON_A_GPU, trainer__accumulate=8, data__vocabulary=50_257), 1, 40),
        # A scheme that ends at L is not evaluated further.
        (size(**LONG, trainer__batch_size=1, max_length=4096), 4, None),
    ],
)
def test_runs_that_fit_are_not_refused(sizes, memory, gpu, monkeypatch):
    machine_of(monkeypatch, memory, gpu)
    check_memory(sizes)


def test_the_memory_of_the_device_counts(monkeypatch):
    machine_of(monkeypatch, 1024, 24)
    large = {"data__vocabulary": 50_257}
    with pytest.raises(BudgetError, match=r"and the GPU has 24 GiB: lower .*trainer.accumulate"):
        check_memory(size("small", trainer__accelerator="cuda", **large))
    check_memory(size("small", **large))
    check_memory(size("small", trainer__accelerator="cuda", **large), local=False)
    with pytest.raises(BudgetError, match=r"and launcher\.memory_gb gives 4 GiB: lower "):
        check_memory(size(trainer__batch_size=4096), local=False, gigabytes=4)


def test_a_sharded_model_may_fit_if_the_whole_does_not(monkeypatch):
    machine_of(monkeypatch, 1024, 2)
    shared = {"trainer__accelerator": "cuda", "trainer__devices": 8, "trainer__batch_size": 8}
    with pytest.raises(BudgetError):
        check_memory(size("small", data__vocabulary=50_257, **shared))
    check_memory(size("small", data__vocabulary=50_257, trainer__strategy="fsdp", **shared))


def test_a_trained_model_is_judged_by_its_evaluation(monkeypatch):
    machine_of(monkeypatch, 2)
    sizes = {"context_length": 1024, "trainer__batch_size": 512, **SOFTMAX}
    with pytest.raises(BudgetError, match="for attention weights, and"):
        check_memory(size(**sizes))
    with pytest.raises(BudgetError, match=r"attention weights of an evaluation, and .* evaluate\.longest"):
        check_memory(size(**sizes, trained=True))
    check_memory(size(**sizes, evaluate__longest=4, trained=True))


def test_whole_numbers_of_a_part_may_be_written_with_an_exponent():
    """For a scheme, an attention, a text or the probe; a float in its file stays a float."""
    asked = ["pos=rope", "pos.base=500.0", "attention=performer", "attention.features=1e1"]
    config = compose(*asked, "data.vocabulary=1e4", "probe=retrieval", "probe.samples=2e1").config
    whole = [config.attention["features"], config.data["vocabulary"], config.probe.samples]
    assert repr([*whole, config.pos["base"]]) == "[10, 10000, 20, 500.0]"


def test_runs_that_cannot_fit_are_refused_before_slow_imports(tmp_path):
    """So that a wrong size is reported at once, also in a study."""
    for asked in (["model.layers=1e6"], ["-m", "pos=rope,alibi", "trainer.batch_size=1e9"]):
        ended = python("-X", "importtime", str(ROOT / "train.py"), *asked, cwd=tmp_path, status=2)
        assert "lower " in ended.stderr.splitlines()[-1]
        assert "poslab" in imported(ended)
        slow = {"torch", "pytorch_lightning", "wandb", "datasets", "matplotlib", "scipy"}
        assert not imported(ended) & slow
