"""A user's Lightning callbacks, by configuration and as objects."""

import random
import re
import sys
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import Callback
from pytorch_lightning.callbacks import EMAWeightAveraging, GradientAccumulationScheduler, ModelCheckpoint

import poslab
from poslab.record.reader import load_run
from poslab.report.write import write_report
from poslab.study.run.plan import plan
from support.commands import called, tiny
from support.runs import request, trained

ARGUMENTS = tiny(logger="local", trainer__max_steps=20, evaluate__validations=10, evaluate__longest=2)
# The loss never falls by so much, so the second validation, at step 4, is no improvement.
STOPPING = (
    "callbacks=[early_stopping]",
    "callbacks.early_stopping.min_delta=9",
    "callbacks.early_stopping.patience=2",
)
OWN = """
from pytorch_lightning import Callback

SEEN = []


class Own(Callback):
    def __init__(self, word):
        self.word = word

    def on_validation_end(self, trainer, module):
        SEEN.append((self.word, module.training, float(trainer.callback_metrics["validation/loss"])))


class NoCallback:
    pass
"""


def test_early_stopping_ends_a_run_and_is_recorded(tmp_path):
    run = poslab.train(poslab.compose(*ARGUMENTS, *STOPPING), tmp_path / "mine")
    assert list(run.table("metrics").step) == [2, 4, 6]
    assert run.manifest.status == "done"
    assert run.manifest.tokens == 6 * 4 * 32
    assert load_run(run.path).steps == (6, 20)
    text = write_report("mine", tmp_path, tmp_path / "reports").page.with_name("report.md").read_text()
    assert re.search(rf"{run.path.name} .* at step 6 of 20", text)
    assert "callbacks=early_stopping" in poslab.compose(*ARGUMENTS, *STOPPING).non_default_settings
    again = poslab.train(poslab.compose(*ARGUMENTS, *STOPPING), tmp_path / "mine")
    assert again.manifest == run.manifest
    assert plan(poslab.compose(*ARGUMENTS), tmp_path).directory.name != run.path.name


def test_a_callback_of_the_users_own_package(tmp_path, monkeypatch):
    module = tmp_path / "own_callbacks.py"
    module.write_text(OWN)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        request = poslab.compose(*ARGUMENTS, "+callbacks.own={_target_: own_callbacks.Own, word: hello}")
        run = poslab.train(request, tmp_path / "mine")
        from own_callbacks import SEEN

        metrics = run.table("metrics")
        losses = metrics.validation_nll / metrics.validation_tokens
        assert [("hello", True, pytest.approx(loss, rel=1e-6)) for loss in losses] == SEEN
        module.write_text(OWN.replace("self.word = word", "self.word = word * 2"))
        assert plan(request, tmp_path).directory.name != run.path.name
    del sys.modules["own_callbacks"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    # Without that package.
    called("evaluate", f"checkpoint={run.path}", "evaluate.segments=2", cwd=elsewhere)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("own_callbacks.NoCallback", "own_callbacks.NoCallback is not a pytorch_lightning.Callback"),
        ("own_callbacks.Missing", "callbacks.own: .*Missing"),
        ("no_such_package.Own", "no module of that name"),
        ("own", "names no class"),
        ("own_callbacks.Own", "callbacks.own: .*word"),
        ("pytorch_lightning.callbacks.ModelCheckpoint", "trainer.checkpoint_seconds"),
    ],
)
def test_objects_that_are_not_callbacks_are_refused(target, reason, tmp_path, monkeypatch):
    (tmp_path / "own_callbacks.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(poslab.ConfigError, match=reason) as refused:
        poslab.train(poslab.compose(*ARGUMENTS, f"+callbacks.own._target_={target}"), tmp_path / "mine")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "mine").exists()  # nothing has begun


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (ModelCheckpoint(), r"checkpoint\.pt"),
        (GradientAccumulationScheduler({0: 2}), r"trainer\.accumulate"),
        (Callback, r"pass objects such as MyCallback\(\)"),
    ],
)
def test_a_callback_that_cannot_work_is_refused(given, reason, tmp_path):
    with pytest.raises(poslab.ConfigError, match=reason):
        poslab.train(request(), tmp_path / "mine", callbacks=[given])
    assert not (tmp_path / "mine").exists()


def test_a_callback_that_ends_training_between_two_validations_leaves_a_last_row(tmp_path):
    class Ending(Callback):
        def on_train_batch_end(self, trainer: Any, *given: Any) -> None:
            trainer.should_stop = trainer.global_step >= 5

    run = poslab.train(request(evaluate__validations=10), tmp_path / "mine", callbacks=[Ending()])
    assert list(run.table("metrics").step) == [2, 4, 5]


def test_a_training_ended_by_a_callback_does_not_resume_from_its_checkpoint():
    wanted = poslab.compose(*ARGUMENTS, *STOPPING)
    _, observer = trained(wanted, keep=(6,))
    _, rest = trained(wanted, observer.states[6])
    assert observer.ended.step == rest.ended.step == 6
    assert [step for step, _ in observer.steps] == [1, 2, 3, 4, 5, 6]
    assert rest.steps == []
    assert rest.rows == []


def test_averaged_weights_are_stored_also_if_only_the_end_of_training_was_left():
    gpt, observer = trained(request(), keep=(5, 20), callbacks=[EMAWeightAveraging(decay=0.9)])
    for step in (5, 20):
        again, _ = trained(request(), observer.states[step], callbacks=[EMAWeightAveraging(decay=0.9)])
        assert all(map(torch.equal, again.parameters(), gpt.parameters()))


def test_random_numbers_continue_from_a_checkpoint():
    class Drawing(Callback):
        def __init__(self) -> None:
            self.drawn: list[Any] = []

        def on_train_batch_start(self, *given: Any) -> None:
            self.drawn.append((torch.rand(()).item(), np.random.rand(), random.random()))

    whole, rest = Drawing(), Drawing()
    _, observer = trained(request(), keep=(8,), callbacks=[whole])
    trained(request(), observer.states[8], callbacks=[rest])
    assert len(whole.drawn) == 20
    assert rest.drawn == whole.drawn[8:]
