"""Check whether the parts of a run fit together by building them. This module imports PyTorch."""

from typing import Any

import numpy as np
import torch

from poslab.config.installation import typed
from poslab.config.schema import ConfigError, PairError, RunConfig, longest_length
from poslab.evaluation.extrapolation import changes_rotation, rescalings
from poslab.model.attention import attention_section
from poslab.model.block import Block
from poslab.model.gpt import GPT, build_parts
from poslab.model.verification import VOCABULARY, sees_later_tokens
from poslab.objectives import UNSCORED, Objective, build_objective

TRIED, LONGEST = 20_000_000, 65_536  # parameters and L of the largest model that is tested for causality


def check_parts(config: RunConfig, vocabulary: int) -> dict[str, Any]:
    """Return the sections of a resolved configuration's parts in a normal form: 500.0 for 500.

    The result also has the `max_length` and the number of `parameters` of the built parts.

    The result may depend only on the fields in `PARTS` of preparation.py and the size of the `vocabulary`.
    Raise PairError if scheme, attention and block do not fit together, ConfigError if other parts do not.
    """
    geometry, scheme, attentions = build_parts(config)
    parameters = sum(value.numel() for part in (scheme, *attentions) for value in part.parameters())
    with torch.device("meta"):  # a block's weights are as large as the model
        for attention in attentions:
            Block(geometry, attention, config.model)
    scheme.check_vocabulary(vocabulary)
    objective = build_objective(config.objective)
    _check_examples(objective, max(config.context_length, objective.needs()), vocabulary)
    if scheme.max_length is not None and scheme.max_length < config.context_length:
        raise PairError(
            f"pos.scheme={scheme.name} is defined up to {scheme.max_length:,} tokens, fewer than "
            f"context_length={config.context_length:,}: choose a smaller context_length or another scheme"
        )
    of_blocks = 12 * geometry.layers * geometry.width**2
    if geometry.causal and parameters + of_blocks <= TRIED and geometry.context_length <= LONGEST:
        _check_causal(config)
    longest = scheme.max_length
    for rescaling in rescalings(config):
        if not scheme.rescale(rescaling):
            raise ConfigError(
                f"evaluate.rescale={config.evaluate.rescale} is for rotations, and "
                f"pos.scheme={scheme.name} has none: leave it out, or use it in a separate command"
            )
        if scheme.max_length is None:  # the limit came from a table of positions, which is dropped
            longest = None
        scheme.rescale(None)
        if not changes_rotation(scheme, rescaling, longest_length(config)):
            raise ConfigError(
                f"evaluate.rescale={rescaling.method} changes nothing for pos.scheme={scheme.name} up to its "
                "longest evaluation: leave it out, or choose a longer evaluate.longest"
            )
    return {
        "pos": scheme.section(),
        "attention": attention_section(config.attention),
        "objective": objective.section(),
        "max_length": longest,
        "parameters": parameters,
    }


def _check_examples(objective: Objective, length: int, vocabulary: int) -> None:
    """Raise ConfigError if an objective makes tokens or targets that the model cannot handle."""
    windows = np.arange(2 * (length + 1)).reshape(2, -1) % vocabulary
    tokens, targets = objective.of_evaluation(windows, vocabulary)
    kind, shape = objective.section()["kind"], windows[:, 1:].shape
    if not tokens.shape == targets.shape == shape:
        raise ConfigError(
            f"objective.kind={kind} makes tokens of shape {tokens.shape} and targets of shape "
            f"{targets.shape} from windows of shape {windows.shape}: both must have shape {shape}"
        )
    values = np.concatenate([tokens.ravel(), targets[targets != UNSCORED]])
    last = vocabulary + objective.extra_tokens - 1
    if values.min() < 0 or values.max() > last:
        raise ConfigError(
            f"objective.kind={kind} makes tokens or targets from {values.min()} to {values.max()}, but the "
            f"model has 0 to {last}: set `extra_tokens` to the number of tokens that the objective adds"
        )


@torch.no_grad()
def _check_causal(config: RunConfig) -> None:
    """Raise ConfigError if a token sees later ones, so that a low loss would mean nothing.

    A leak through a parameter that is initialised to 0 is missed; `poslab check-scheme` uses random values.
    """
    geometry, scheme, mixers = build_parts(config)
    gpt = GPT(VOCABULARY, geometry, scheme, mixers, config.model).eval()
    gpt.initialise(0)
    for weight in gpt.parameters():  # at initialisation, attention contributes almost nothing
        weight.mul_(8 if weight.ndim > 1 else 1)
    length = min(16, geometry.context_length, scheme.max_length or 16)
    if length > 1 and sees_later_tokens(gpt, VOCABULARY, length):
        raise ConfigError(
            f"with pos.scheme={scheme.name} and attention.kind={config.attention['kind']}, a token sees "
            f"later ones, and a causal loss would mean nothing: see `{typed('check-scheme')}`, or choose "
            "objective=masked"
        )
