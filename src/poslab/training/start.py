"""Start a run from the weights of a finished run; everything else is as at a first step."""

from pathlib import Path
from typing import Any

from poslab.config.request import Start
from poslab.config.schema import ConfigError, RunConfig
from poslab.data.corpus import Corpus
from poslab.data.windows import validation_windows
from poslab.evaluation.losses import in_precision, token_losses
from poslab.model.gpt import GPT
from poslab.objectives import UNSCORED, build_objective
from poslab.training.trained import fill_with, read_trained_model


def begin_from(start: Start, gpt: GPT, config: RunConfig, corpus: Corpus) -> dict[str, Any]:
    """Load the weights of the run `start` into `gpt`, and return `origin` for the record.

    Raise ConfigError if that run has changed.
    """
    trained = read_trained_model(Path(start.directory))
    if trained.digest != start.checkpoint:
        raise ConfigError(f"{start.run} has changed since the command began: run the command again")
    fill_with(gpt, trained.weights)
    nll, tokens = _loss_before(gpt, config, corpus)
    return {**start.origin(), "validation_nll": nll, "validation_tokens": tokens}


def _loss_before(gpt: GPT, config: RunConfig, corpus: Corpus) -> tuple[float, int]:
    """Return the loss on the run's validation windows before its first step: summed nats, and tokens."""
    windows = validation_windows(corpus, config.evaluate.validation_windows, config.context_length)
    tokens, targets = build_objective(config.objective).of_evaluation(windows, corpus.vocabulary)
    with in_precision(config):
        nll = float(token_losses(gpt.to(config.trainer.accelerator), tokens, targets).sum())
    gpt.to("cpu")
    return nll, int((targets != UNSCORED).sum())
