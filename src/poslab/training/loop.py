"""Train one model: batches by (seed, step), a Lightning trainer, a row of metrics.csv for each validation.

After any step, the state can be saved as Lightning's checkpoint of tensors and plain values. Training that
resumes from one ends with the same bits as training that was never interrupted.
"""

import copy
import logging
import math
import random
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytorch_lightning as lightning
import torch
from lightning_fabric.plugins import CheckpointIO
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning.strategies import Strategy

from poslab.config.classes import callbacks_of
from poslab.config.schema import RunConfig, TrainerOptions
from poslab.data.corpus import Corpus
from poslab.data.windows import validation_windows
from poslab.evaluation.losses import token_losses
from poslab.model.gpt import GPT
from poslab.model.rescaling import Rescaling
from poslab.objectives import UNSCORED, build_objective
from poslab.training.batches import TrainingBatches
from poslab.training.module import LanguageModel
from poslab.training.observer import DivergedError, Observer, State

RandomState = Mapping[str, Any]  # the states of random number generators, as tensors and plain values
LIGHTNING_PRECISION = {"float32": "32-true", "bfloat16": "bf16-mixed"}


class ValidationCallback(lightning.Callback):
    """A callback that validates at evenly spaced steps and reports rows, steps and states to the observer.

    Times are in seconds; training times exclude validation. The validation hooks of other callbacks are
    called, with `validation/loss` and `train/loss`, in nats per token, in `trainer.callback_metrics`.
    """

    def __init__(self, config: RunConfig, corpus: Corpus, observer: Observer) -> None:
        steps, count = config.trainer.max_steps, config.evaluate.validations
        self.validation_steps = {math.ceil(steps * (index + 1) / count) for index in range(count)}
        windows = validation_windows(corpus, config.evaluate.validation_windows, config.context_length)
        examples = build_objective(config.objective).of_evaluation(windows, corpus.vocabulary)
        self.tokens, self.targets = examples
        scored = self.targets[self.targets != UNSCORED]
        self.scored, self.scored_bytes = scored.size, int(corpus.token_bytes[scored].sum())
        self.tokens_per_step = config.trainer.batch_size * config.context_length
        self.observer = observer
        self.io = StateInMemory()
        self.random: RandomState | None = None
        self.step = 0  # steps done
        self.training_seconds = self.validation_seconds = 0.0
        self.resumed = time.perf_counter()  # the time when training began or resumed
        self.last_row = (0, 0.0)  # the step and the training seconds of the last row
        self.stopped = False  # whether a callback has ended training
        self.began = False  # whether this process has trained

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "training_seconds": self._elapsed(),
            "validation_seconds": self.validation_seconds,
            "last_row": list(self.last_row),
            "stopped": self.stopped,
            "random": _random_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step, self.stopped, self.random = state["step"], state["stopped"], state["random"]
        self.training_seconds = state["training_seconds"]
        self.validation_seconds = state["validation_seconds"]
        self.last_row = (*state["last_row"],)

    def on_train_start(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        self.began = True
        if trainer.strategy.broadcast(self.step) != self.step:
            raise RuntimeError("the run's processes read different checkpoints: run the command again")
        if self.random is not None:
            _set_random_state(self.random)
        trainer.should_stop |= self.stopped
        self.observer.started()
        self.resumed = time.perf_counter()

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        module: lightning.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        if trainer.global_step == self.step:  # not the last microbatch of a step
            return
        self.step = trainer.global_step
        rate = self.step * self.tokens_per_step / self._elapsed()
        assert isinstance(module, LanguageModel)
        # Lightning divides the loss in `outputs` by the number of microbatches, so it is not used.
        self.observer.step(self.step, module.last_loss.item, rate)
        if self.step in self.validation_steps:
            callbacks = [callback for callback in trainer.callbacks if callback is not self]  # type: ignore[attr-defined]
            for callback in callbacks:
                callback.on_validation_start(trainer, module)
                callback.on_validation_epoch_start(trainer, module)
            train, validation = self._validate(trainer, module)
            if callbacks:  # takes milliseconds
                module.log_dict({"train/loss": train, "validation/loss": validation}, batch_size=1)
            for callback in callbacks:
                callback.on_validation_epoch_end(trainer, module)
                callback.on_validation_end(trainer, module)
        self.stopped = trainer.should_stop
        # All processes of a run take part in a checkpoint, and the first one writes it.
        if trainer.strategy.reduce_boolean_decision(self.observer.checkpoint_due(self.step), all=False):
            trainer.save_checkpoint(StateInMemory.PATH)
            if (state := self.io.take()) is not None:
                self.observer.checkpoint(self.step, state)

    def on_train_end(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        if self.step > self.last_row[0]:  # a callback has ended training between two validations
            assert isinstance(module, LanguageModel)
            self._validate(trainer, module)

    def on_fit_end(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        if not self.began:  # it resumed after the last step, and Lightning then skips on_train_end
            for callback in trainer.callbacks:  # type: ignore[attr-defined]
                callback.on_train_end(trainer, module)

    def _elapsed(self) -> float:
        return self.training_seconds + time.perf_counter() - self.resumed

    def _validate(self, trainer: lightning.Trainer, module: LanguageModel) -> tuple[float, float]:
        """Report a row; return training loss since the last row and validation loss, in nats per token."""
        sums = module.pop_metrics()  # waits for the device, so the time below is of finished work
        self.training_seconds = self._elapsed()
        self.resumed = now = time.perf_counter()
        with trainer.precision_plugin.forward_context():
            nll = float(token_losses(module.gpt, self.tokens, self.targets).sum())
        step, seconds = self.last_row
        tokens = (self.step - step) * self.tokens_per_step  # since the last row
        self.observer.row(
            {
                "step": self.step,
                "tokens": self.step * self.tokens_per_step,
                "seconds": self.training_seconds,
                **sums,
                "validation_nll": nll,
                "validation_tokens": self.scored,
                "validation_bytes": self.scored_bytes,
                "learning_rate": trainer.optimizers[0].param_groups[0]["lr"],
                "tokens_per_second": tokens / (self.training_seconds - seconds),
            }
        )
        if not (math.isfinite(sums["train_nll"]) and math.isfinite(nll)):
            raise DivergedError(f"the loss is not a number at step {self.step}")
        self.last_row = (self.step, self.training_seconds)
        self.resumed = time.perf_counter()
        self.validation_seconds += self.resumed - now
        return sums["train_nll"] / sums["train_tokens"], nll / self.scored


class StateInMemory(CheckpointIO):
    """Lightning's checkpoint, held in memory: the observer writes it to disk."""

    PATH = "a run's state"

    def __init__(self) -> None:
        self.state: State | None = None

    def take(self) -> State | None:
        """Return the checkpoint and drop the reference to it."""
        state, self.state = self.state, None
        return state

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        self.state = checkpoint

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return dict(self.take() or {})

    def remove_checkpoint(self, path: Any) -> None:
        self.state = None


@dataclass(frozen=True)
class TrainingResult:
    """Facts about a training that has ended."""

    step: int  # the last step: before trainer.max_steps if a callback has ended training
    validation_seconds: float
    batches: str  # SHA-256 of the batches trained on, in order


def train(
    gpt: GPT,
    config: RunConfig,
    corpus: Corpus,
    observer: Observer,
    state: State | None = None,
    callbacks: Sequence[lightning.Callback] = (),
    initialise: bool = True,
) -> TrainingResult:
    """Train `gpt` in place up to step `trainer.max_steps` of a resolved configuration.

    `callbacks` are added to those in the configuration. With a `state` from an earlier call, resume to the
    same bits; without one, draw initial weights, unless `gpt` already has them (`initialise` is False). Raise
    DivergedError as soon as a validation has a loss that is not finite, and ConfigError if a configured
    callback cannot be created.
    """
    torch.manual_seed(config.seed)
    if state is None and initialise:
        gpt.initialise(config.seed)
    if config.trainer.compile is True:
        gpt.compile_blocks()
    gpt.recompute = config.trainer.recompute
    recorder = ValidationCallback(config, corpus, observer)
    module = LanguageModel(gpt, config.trainer, config.seed)
    recorder.io.state = state
    del state  # as large as the model and its optimizer together
    configured = callbacks_of(config.callbacks) if config.callbacks else []
    _fit(module, config, corpus, recorder, callbacks=[*configured, *callbacks])
    return TrainingResult(recorder.step, recorder.validation_seconds, module.batches)


def without_positions(gpt: GPT, config: RunConfig, corpus: Corpus, observer: Observer) -> GPT:
    """Return a copy of a trained `gpt`, without rotation, after `evaluate.recalibration_steps` more steps.

    As in DroPE (Gelberg et al. 2025, arXiv 2512.12167), train at length L on the batches that follow those of
    training, with the run's optimizer settings and schedule over these steps; a tenth of them are warm-up.
    Raise DivergedError.
    """
    copied = copy.deepcopy(gpt).train()
    copied.scheme.rescale(Rescaling("drop", 1.0))
    copied.recompute = config.trainer.recompute
    steps = config.evaluate.recalibration_steps
    trainer = config.trainer.model_copy(update={"max_steps": steps, "warmup_steps": math.ceil(steps / 10)})
    evaluation = config.evaluate.model_copy(update={"validations": 1})
    short = config.model_copy(update={"trainer": trainer, "evaluate": evaluation})
    module = LanguageModel(copied, trainer, config.seed, first_step=config.trainer.max_steps)
    _fit(module, short, corpus, ValidationCallback(short, corpus, observer))
    return copied


def _fit(
    module: LanguageModel,
    config: RunConfig,
    corpus: Corpus,
    recorder: ValidationCallback,
    callbacks: Sequence[lightning.Callback] = (),
) -> None:
    """Train for all steps, or for those after the state in `recorder.io`."""
    options, gpt = config.trainer, module.gpt
    if options.strategy == "fsdp":  # the original model stays unsharded
        module.gpt = copy.deepcopy(gpt)
    with quiet_lightning():
        trainer = lightning.Trainer(
            accelerator=options.accelerator,
            devices=options.devices,
            num_nodes=options.nodes,
            strategy=_strategy(options),
            # poslab itself starts the processes, on any cluster, and writes the checkpoints.
            plugins=[LightningEnvironment(), recorder.io],
            precision=LIGHTNING_PRECISION[options.precision],  # type: ignore[arg-type]
            max_steps=options.max_steps,
            accumulate_grad_batches=options.accumulate,
            callbacks=[*callbacks, recorder],  # last: checkpoints have the others' state after this step
            # Lightning itself does not validate. EarlyStopping reads here whether an epoch has validations.
            val_check_interval=1,
            check_val_every_n_epoch=None,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
        share = module.first_step, trainer.global_rank, trainer.world_size
        # On a CPU a prefetching thread would take time from the steps.
        batches = TrainingBatches(config, corpus, *share, trainer.strategy.root_device.type == "cuda")
        trainer.fit(module, batches, ckpt_path=None if recorder.io.state is None else StateInMemory.PATH)
    if module.gpt is not gpt:
        from poslab.training.sharded import take_weights

        take_weights(gpt, module.gpt)


def _strategy(options: TrainerOptions) -> str | Strategy:
    """Return Lightning's strategy for the run's devices."""
    world = options.devices * options.nodes
    if options.strategy == "fsdp":
        from poslab.training.sharded import Sharded

        return Sharded(world)
    return "ddp" if world > 1 else "auto"


def _random_state() -> RandomState:
    kind, keys, *rest = np.random.get_state(legacy=True)
    assert isinstance(keys, np.ndarray)
    version, numbers, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [kind, torch.from_numpy(keys.astype(np.int64)), *rest],
        "python": [version, list(numbers), gauss],
    }


def _set_random_state(state: RandomState) -> None:
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"][: torch.cuda.device_count()])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence Lightning's messages about devices and workers, which a user cannot change."""
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(pytorch_lightning|lightning_fabric)\..*")
        yield
