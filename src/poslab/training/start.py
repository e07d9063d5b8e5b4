"""The start of a run from a finished run's weights: all else is as at a first step."""

from poslab.config.schema import RunConfig
from poslab.data.corpus import Corpus
from poslab.data.windows import validation_windows
from poslab.evaluation.losses import in_precision, token_losses
from poslab.model.gpt import GPT
from poslab.objectives import UNSCORED, build_objective


def loss_before(gpt: GPT, config: RunConfig, corpus: Corpus) -> tuple[float, int]:
    """Return the loss on the run's validation windows before its first step: summed nats, and tokens."""
    windows = validation_windows(corpus, config.evaluate.validation_windows, config.context_length)
    tokens, targets = build_objective(config.objective).of_evaluation(windows, corpus.vocabulary)
    with in_precision(config):
        nll = float(token_losses(gpt.to(config.trainer.accelerator), tokens, targets).sum())
    gpt.to("cpu")
    return nll, int((targets != UNSCORED).sum())
