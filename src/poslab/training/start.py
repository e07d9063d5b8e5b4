"""How a run begins that goes on from a finished one: with its weights, and all else as at a first step."""

import torch

from poslab.config.schema import RunConfig
from poslab.data.corpus import Corpus
from poslab.data.windows import validation_windows
from poslab.evaluation.losses import token_losses
from poslab.model.gpt import GPT


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
