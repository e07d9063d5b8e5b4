"""Training and whole runs on a GPU give the results of a CPU."""

import os
from unittest.mock import patch

import pytest
import torch

from poslab.data.cache import prepare
from poslab.model.gpt import build
from poslab.study.run.plan import plan, resolve
from poslab.training import loop
from poslab.training.batches import TrainingBatches
from poslab.training.module import LanguageModel
from support.commands import read
from support.devices import CUDA
from support.models import ATTENTIONS, PAIRS, POSITIONS, SCHEMES
from support.runs import make, request, trained

PROBE = {"tasks": ["passkey", "copy"], "share": 0.5, "samples": 3, "depths": 3}
LAST_DIGITS = 2e-3  # a GPU sums in any order, so the last digits differ from run to run
# One attention for each scheme; flash refuses some.
ATTENTION = {pos: kind for kind in ("softmax", "flash") for pos, works in PAIRS if works == kind}


def on(device, **changes):
    return request(trainer__accelerator=device, model__width=64, **changes)


def curve(told, after=0):
    return [
        loss
        for row in told.rows
        if row["step"] > after
        for loss in (row["train_nll"] / row["train_tokens"], row["validation_nll"] / row["validation_tokens"])
    ]


@pytest.mark.parametrize("device", [CUDA])  # on a CPU bit for bit: test_training.py
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_training_resumes_from_a_state(device, precision):
    wanted = on(device, trainer__precision=precision, trainer__accumulate=2, pos=POSITIONS["rope_randomised"])
    _, whole = trained(wanted, keep=(8,))
    _, rest = trained(wanted, whole.states[8])
    assert rest.ended.batches == whole.ended.batches
    assert curve(rest) == pytest.approx(curve(whole, after=8), rel=LAST_DIGITS, abs=0)
    assert curve(whole)[-1] < curve(whole)[0] - 0.2


@pytest.mark.parametrize("device", [CUDA])  # two processes on a CPU: test_ranks.py
def test_one_process_with_ddp_has_the_curve_of_one_without(device, monkeypatch):
    _, alone = trained(on(device))
    monkeypatch.setattr(loop, "_strategy", lambda options: "ddp")
    with patch.dict(os.environ):  # Lightning sets LOCAL_RANK, with which commands wait for others
        _, together = trained(on(device))
    torch.distributed.destroy_process_group()
    assert together.ended.batches == alone.ended.batches
    assert curve(together) == pytest.approx(curve(alone), rel=1e-5 + LAST_DIGITS)


@pytest.mark.parametrize(
    ("device", "pos"),
    [("cpu", "rope"), *(pytest.param("cuda", pos, marks=CUDA.marks) for pos in ("rope", "fire"))],
)
def test_a_whole_run_trains_evaluates_asks_and_inspects(device, pos, tmp_path):
    wanted = on(
        device,
        pos=SCHEMES[pos],
        context_length=128,
        probe=PROBE,
        data__vocabulary="bytes",
        trainer__max_steps=6,
        evaluate__validations=2,
        evaluate__longest=2,
        evaluate__rescale=["none", "ntk", "drop"] if pos == "rope" else ["none"],
        evaluate__recalibration_steps=2 if pos == "rope" else 0,
    )
    manifest = make(wanted, tmp_path)
    assert manifest.status == "done", manifest.reason
    assert device in str(manifest.config["trainer"]["accelerator"])
    assert manifest.kernel
    directory = plan(wanted, tmp_path).directory
    assert all(float(row["nll"]) > 0 for row in read(directory / "extrapolation.csv"))
    tables = ["probe", "attention_distance", "position", "position_probe"]
    tables += ["scheme_rotation", "scheme_bound"] if pos == "rope" else ["scheme_bias"]
    assert all(read(directory / f"{table}.csv") for table in tables)
    if pos == "rope":
        assert {row["rescale"] for row in read(directory / "rescaled.csv")} == {"ntk", "drop"}


@pytest.mark.parametrize("device", [CUDA])  # on a CPU PyTorch takes minutes to compile a block
@pytest.mark.parametrize("pos", ["rope", "t5", "kerple"])
def test_compiled_blocks_train_the_same_curve(device, pos):
    plain, compiled = (
        trained(on(device, pos=SCHEMES[pos], trainer__precision="float32", trainer__compile=compiled))[1]
        for compiled in (False, True)
    )
    assert curve(compiled) == pytest.approx(curve(plain), rel=LAST_DIGITS)


@pytest.mark.parametrize("device", [CUDA])
@pytest.mark.parametrize("pos", SCHEMES)
def test_no_step_waits_for_the_device(device, pos):
    """Forward, backward, clipping and optimizer; PyTorch raises an error if the CPU would have to wait."""
    attention = ATTENTIONS[ATTENTION[pos]]
    config = resolve(on(device, pos=SCHEMES[pos], attention=attention, model__layers=4).config)
    corpus = prepare(config.data)
    module = LanguageModel(build(config, corpus.vocabulary).to(device), config.trainer, config.seed)
    optimizer = module.configure_optimizers()["optimizer"]
    batches = TrainingBatches(config, corpus)

    def step(index):
        tokens, targets = (rows.pin_memory().to(device, non_blocking=True) for rows in batches[index][:2])
        batch = batches[index]._replace(tokens=tokens, targets=targets)
        module.training_step(batch, index).backward()
        module.configure_gradient_clipping(optimizer)
        optimizer.step()
        optimizer.zero_grad()

    step(0)  # compiles, and creates the optimizer's state
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(1)
    finally:
        torch.cuda.set_sync_debug_mode("default")
