"""poslab.compose and poslab.train run a training as a function call."""

import gc
import os
import signal
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hydra
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from pytorch_lightning import Callback, Trainer

import poslab
from poslab.model.positions.rope import RoPE
from poslab.study.run.plan import plan
from poslab.training.checkpoints import newest_checkpoint
from poslab.training.module import LanguageModel
from support.commands import tiny
from support.runs import assert_equal_results, make, request

ARGUMENTS = tiny(trainer__max_steps=20, evaluate__validations=5, evaluate__longest=2, logger="local")


def test_runs_are_trained_and_read_as_a_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [poslab.train(poslab.compose(f"pos={pos}", *ARGUMENTS), "runs/mine") for pos in ("rope", "alibi")]
    assert [run.manifest.status for run in runs] == ["done", "done"]
    lengths = runs[0].table("extrapolation")
    assert set(lengths.protocol) == {"non_overlapping", "sliding", "matched"}
    assert len(runs[0].table("metrics")) == 5
    assert runs[1].model().scheme.name == "alibi"
    assert set(poslab.read("mine").runs["pos"]) == {"rope", "alibi"}
    with pytest.raises(poslab.ConfigError, match="it has attention_distance"):
        runs[0].table("lengths")


def test_an_error_is_raised_and_recorded(tmp_path, monkeypatch):
    class OwnError(Exception):
        pass

    def fails(*arguments: Any) -> None:
        raise OwnError("in a scheme")

    plan(request(), tmp_path)  # checks the scheme, which is then not checked again
    monkeypatch.setattr(RoPE, "rotate", fails)
    with pytest.raises(OwnError):
        poslab.train(request(), tmp_path / "test")
    (record,) = tmp_path.glob("test/rope-*")
    assert poslab.RunDirectory(record).manifest.status == "failed"
    monkeypatch.undo()
    assert poslab.train(request(), tmp_path / "test").manifest.status == "done"


def test_a_part_whose_file_has_changed_since_it_was_imported_is_not_run(tmp_path, monkeypatch):
    """As in a notebook, where the older code would run with the identity of the new one."""
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "edited_scheme.py"
    code = (
        "import torch\n"
        "from poslab.model.positions import Scheme\n"
        "class Edited(Scheme):\n"
        "    def bias(self, distance):\n"
        "        return (-0.1 * distance.double()).expand(self.geometry.heads, -1)\n"
    )
    file.write_text(code)
    composed = poslab.compose("pos=none", "pos.scheme=edited_scheme", *ARGUMENTS)
    poslab.gpt({"scheme": "edited_scheme"})
    file.write_text(code + "# words\n")
    first = poslab.train(composed, tmp_path / "test")
    file.write_text(code.replace("0.1", "10"))
    for call in (
        lambda: poslab.train(composed, tmp_path / "test"),
        lambda: poslab.evaluate(first, evaluations=tmp_path / "again"),
    ):
        with pytest.raises(poslab.ConfigError, match=r"edited_scheme\.py has changed since"):
            call()


def test_ctrl_c_writes_a_checkpoint_from_which_the_run_resumes_bit_for_bit(tmp_path, monkeypatch):
    step, taken = LanguageModel.training_step, []

    def stopped(module: LanguageModel, *arguments: Any) -> Any:
        taken.append(module.global_step)
        if len(taken) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return step(module, *arguments)

    monkeypatch.setattr(LanguageModel, "training_step", stopped)
    handler, threads = signal.getsignal(signal.SIGINT), torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        poslab.train(request(), tmp_path / "test")
    assert signal.getsignal(signal.SIGINT) is handler
    torch.set_num_threads(threads + 1)  # it resumes with as many as it started with
    run = poslab.train(request(), tmp_path / "test")
    assert (run.manifest.threads, torch.get_num_threads()) == (threads, threads + 1)
    torch.set_num_threads(threads)
    assert poslab.train(request(), tmp_path / "test").manifest == run.manifest
    assert run.manifest.processes == 2
    assert len(taken) == 20  # no step is repeated
    made = make(request(), tmp_path / "other")
    assert_equal_results(run.path, tmp_path / "other" / "test" / str(made.run))


def test_a_second_ctrl_c_ends_the_run_and_not_the_callers_program(tmp_path, monkeypatch):
    step = LanguageModel.training_step

    def stopped(module: LanguageModel, *arguments: Any) -> Any:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        return step(module, *arguments)

    monkeypatch.setattr(LanguageModel, "training_step", stopped)
    monkeypatch.setattr(os, "_exit", lambda status: pytest.fail("the program ended"))
    with pytest.raises(KeyboardInterrupt):
        poslab.train(request(), tmp_path / "test")
    monkeypatch.undo()
    assert poslab.train(request(), tmp_path / "test").manifest.status == "done"


def test_a_state_is_freed_once_training_has_resumed_from_it(tmp_path, monkeypatch):
    """Its weights are copied into the model, and a large model has no room for them twice."""
    weights: list[weakref.ref[torch.Tensor]] = []
    alive = []

    class Stop(Callback):
        def on_train_batch_end(self, trainer: Trainer, *arguments: Any) -> None:
            if trainer.global_step == 8:
                raise KeyboardInterrupt

    class Look(Callback):
        def on_train_batch_end(self, trainer: Trainer, *arguments: Any) -> None:
            if not alive:  # the check takes a second
                gc.collect()
                alive.append(weights[0]() is not None)

    def remembered(*arguments: Any) -> Any:
        if (state := newest_checkpoint(*arguments)) is not None:
            weights.append(weakref.ref(state["state_dict"]["gpt.embedding.weight"]))
        return state

    monkeypatch.setattr("poslab.study.run.resume.newest_checkpoint", remembered)
    wanted = request(trainer__checkpoint_seconds=0)
    with pytest.raises(SystemExit):
        poslab.train(wanted, tmp_path / "test", callbacks=[Stop()])
    poslab.train(wanted, tmp_path / "test", callbacks=[Look()])
    assert alive == [False]


def test_compose_leaves_hydra_to_the_callers_application(tmp_path):
    (tmp_path / "app.yaml").write_text("of: app")
    with hydra.initialize_config_dir(str(tmp_path), version_base="1.3"):
        assert poslab.compose("pos=alibi").pos == "alibi"
        assert hydra.compose("app").of == "app"
    assert not GlobalHydra.instance().is_initialized()


def test_compose_takes_option_files_of_a_folder(tmp_path):
    folder = tmp_path / "jane's conf, [1]"
    (folder / "pos").mkdir(parents=True)
    (folder / "pos" / "mine.yaml").write_text("scheme: rope\nbase: 300.0\npairing: half\n")
    composed = poslab.compose("pos=mine", "pos.pairing=interleaved", config_dir=folder)
    assert composed.config.pos == {"scheme": "rope", "base": 300.0, "pairing": "interleaved"}
    with pytest.raises(poslab.ConfigError, match="nosuch is not a folder"):
        poslab.compose("pos=mine", config_dir="nosuch")


def test_threads_compose_at_once():
    with ThreadPoolExecutor(4) as pool:
        composed = list(pool.map(lambda seed: poslab.compose(f"seed={seed}"), range(4)))
    assert [request.config.seed for request in composed] == [*range(4)]


@pytest.mark.parametrize(
    "overrides",
    [("seed=0", "seed=1"), ("--pos=rope",), ("hydra.run.dir=x",), ("sweep=quickstart",), (["pos=rope"],)],
)
def test_compose_refuses_what_it_would_ignore(overrides):
    with pytest.raises(poslab.ConfigError) as raised:
        poslab.compose(*overrides)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("asked", "name", "message"),
    [
        ("pos=rope", "test", r"poslab\.compose"),
        (request(tune__factors=[0.5, 1.0, 2.0], tune__seeds=[7]), "test", r"use train\.py"),
        *((request(), name, "cannot be a study") for name in ("my runs", ".hidden", 101 * "a", "two\nlines")),
    ],
    ids=["text", "tuning", "space", "hidden", "long", "lines"],
)
def test_requests_that_are_not_runs_of_a_study_are_refused(asked, name, message, tmp_path):
    with pytest.raises(poslab.ConfigError, match=message) as refused:
        poslab.train(asked, tmp_path / name)
    assert "\n" not in str(refused.value)
