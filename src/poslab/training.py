"""Training one model: batches by (seed, step), a Lightning trainer, a metrics row a validation."""

import copy
import logging
import math
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytorch_lightning as lightning
import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from poslab.config import Config
from poslab.data import Corpus, training_batch, validation_windows
from poslab.evaluate import token_losses
from poslab.model import GPT
from poslab.module import LanguageModel
from poslab.rescaling import Rescaling

LIGHTNING_PRECISION = {"float32": "32-true", "bfloat16": "bf16-mixed"}


class DivergedError(RuntimeError):
    """A loss that is no number."""


OnRow = Callable[[Mapping[str, Any]], None]  # a row of metrics.csv
OnStep = Callable[[int, Callable[[], float], float], None]  # step, its loss (waits for the device), tokens/s


class TrainingBatches(Dataset[Tensor]):
    """Item i is part i % accumulate of the batch of step i // accumulate: a function of (seed, i) alone.

    Steps are counted from `first_step`.
    """

    def __init__(self, config: Config, corpus: Corpus, first_step: int = 0) -> None:
        self.config = config
        self.corpus = corpus
        self.first_step = first_step

    def __len__(self) -> int:
        return self.config.trainer.max_steps * self.config.trainer.accumulate

    def __getitem__(self, index: int) -> Int[Tensor, "B T+1"]:
        options = self.config.trainer
        step, part = divmod(index, options.accumulate)
        windows = training_batch(
            self.corpus,
            self.config.seed,
            self.first_step + step,
            options.batch_size,
            self.config.context_length,
        )
        return torch.from_numpy(np.array_split(windows, options.accumulate)[part])


class Recorder(lightning.Callback):
    """Validates at evenly spaced steps and keeps a row of metrics.csv for each."""

    def __init__(
        self,
        config: Config,
        corpus: Corpus,
        on_row: OnRow,
        on_step: OnStep,
    ) -> None:
        steps, count = config.trainer.max_steps, config.evaluate.validations
        self.validation_steps = {math.ceil(steps * (index + 1) / count) for index in range(count)}
        self.windows = validation_windows(corpus, config.evaluate.validation_windows, config.context_length)
        self.window_bytes = int(corpus.token_bytes[self.windows[:, 1:]].sum())
        self.tokens_a_step = config.trainer.batch_size * config.context_length
        self.on_row = on_row
        self.on_step = on_step
        self.step = 0
        self.training_seconds = 0.0
        self.validation_seconds = 0.0

    def on_train_start(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        self.resumed = time.perf_counter()
        self.last_row = (0, 0.0)

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        module: lightning.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        if trainer.global_step == self.step:  # a part of an accumulated batch
            return
        self.step = trainer.global_step
        elapsed = self.training_seconds + time.perf_counter() - self.resumed
        rate = self.step * self.tokens_a_step / elapsed
        assert isinstance(module, LanguageModel)
        loss = module.last_loss  # Lightning's own is divided by the number of parts
        self.on_step(self.step, loss.item, rate)
        if self.step in self.validation_steps:
            self._validate(trainer, module)

    def _validate(self, trainer: lightning.Trainer, module: LanguageModel) -> None:
        sums = module.take_sums()  # waits for the device, so the clock below counts finished work
        now = time.perf_counter()
        self.training_seconds += now - self.resumed
        with trainer.precision_plugin.forward_context():
            nll = float(token_losses(module.gpt, self.windows).sum())
        step, seconds = self.last_row
        tokens = self.windows[:, 1:].size
        self.on_row(
            {
                "step": self.step,
                "tokens": self.step * self.tokens_a_step,
                "seconds": self.training_seconds,
                **sums,
                "validation_nll": nll,
                "validation_tokens": tokens,
                "validation_bytes": self.window_bytes,
                "learning_rate": trainer.optimizers[0].param_groups[0]["lr"],
                "tokens_per_second": (self.step - step)
                * self.tokens_a_step
                / (self.training_seconds - seconds),
            }
        )
        if not (math.isfinite(sums["train_nll"]) and math.isfinite(nll)):
            raise DivergedError(f"the loss is not a number at step {self.step}")
        self.last_row = (self.step, self.training_seconds)
        self.resumed = time.perf_counter()
        self.validation_seconds += self.resumed - now


def train(
    gpt: GPT,
    config: Config,
    corpus: Corpus,
    on_row: OnRow,
    on_step: OnStep,
) -> Recorder:
    """Train `gpt` in place for `trainer.max_steps` steps; `precision` and `accelerator` must be resolved.

    Raises DivergedError as soon as a validation sees a loss that is no number.
    """
    torch.manual_seed(config.seed)
    gpt.initialise(config.seed)
    if config.trainer.compile:
        gpt.compile()
    return _fit(gpt, config, corpus, Recorder(config, corpus, on_row, on_step), 0)


def without_positions(gpt: GPT, config: Config, corpus: Corpus, on_step: OnStep) -> GPT:
    """A copy of a trained `gpt` whose rotation is dropped, trained on for `evaluate.recalibration_steps`.

    At length L, as in DroPE (Gelberg et al. 2025, arXiv 2512.12167), with the run's optimizer settings and
    its schedule over so many steps, a tenth of them warm-up, on the batches that follow those of training.
    """
    copied = copy.deepcopy(gpt)
    copied.scheme.rescale(Rescaling("drop", 1.0))
    steps = config.evaluate.recalibration_steps
    trainer = config.trainer.model_copy(update={"max_steps": steps, "warmup_steps": math.ceil(steps / 10)})
    evaluation = config.evaluate.model_copy(update={"validations": 1})
    short = config.model_copy(update={"trainer": trainer, "evaluate": evaluation})
    _fit(copied, short, corpus, Recorder(short, corpus, lambda row: None, on_step), config.trainer.max_steps)
    return copied


def _fit(gpt: GPT, config: Config, corpus: Corpus, recorder: Recorder, first_step: int) -> Recorder:
    options = config.trainer
    with quiet_lightning():
        trainer = lightning.Trainer(
            accelerator=options.accelerator,
            devices=1,
            precision=LIGHTNING_PRECISION[options.precision],  # type: ignore[arg-type]
            max_steps=options.max_steps,
            accumulate_grad_batches=options.accumulate,
            callbacks=[recorder],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        batches = DataLoader(TrainingBatches(config, corpus, first_step), batch_size=None, shuffle=False)
        module = LanguageModel(gpt, options, config.seed, first_step * options.accumulate)
        on_interrupt = signal.getsignal(signal.SIGINT)
        try:
            trainer.fit(module, batches)
        except SystemExit:  # how Lightning ends on Ctrl-C, with further ones ignored from then on
            signal.signal(signal.SIGINT, on_interrupt)
            if trainer.interrupted:
                raise KeyboardInterrupt from None
            raise
    return recorder


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence what Lightning says of devices, workers and its parts: a user can do nothing about it."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"pytorch_lightning\..*")
        yield
