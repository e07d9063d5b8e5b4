"""How a run begins that goes on from a finished one: with its weights, and all else as at a first step."""

from typing import Any, cast

import torch

from poslab.config.schema import RunConfig
from poslab.data.corpus import Corpus
from poslab.data.windows import validation_windows
from poslab.evaluation.losses import token_losses
from poslab.model.gpt import GPT
from poslab.training.module import LanguageModel
from poslab.training.observer import State


def start_state(gpt: GPT, config: RunConfig) -> State:
    """The state before the first step, for `poslab.training.loop.train`, of a `gpt` that has its weights.

    The optimizer, the schedule and the sums are new. `random` is left to the seed, as in any training.
    """
    module = LanguageModel(gpt, config.trainer, config.seed)
    configured: Any = module.configure_optimizers()
    state = {
        "step": 0,
        "weights": {name: tensor.clone() for name, tensor in gpt.state_dict().items()},
        "optimizer": configured["optimizer"].state_dict(),
        "schedule": configured["lr_scheduler"]["scheduler"].state_dict(),
        "sums": module.sums(),
        "random": None,
        "training_seconds": 0.0,
        "validation_seconds": 0.0,
        "last_row": [0, 0.0],
    }
    return cast(State, state)


def loss_before(gpt: GPT, config: RunConfig, corpus: Corpus) -> tuple[float, int]:
    """The loss on the run's validation windows before its first step: nats in all, and tokens."""
    windows = validation_windows(corpus, config.evaluate.validation_windows, config.context_length)
    cuda = config.trainer.accelerator == "cuda"
    placed = gpt.to("cuda") if cuda else gpt
    half = config.trainer.precision == "bfloat16"
    with torch.autocast("cuda" if cuda else "cpu", torch.bfloat16, enabled=half):
        nll = float(token_losses(placed, windows).sum())
    gpt.to("cpu")
    return nll, windows[:, 1:].size
