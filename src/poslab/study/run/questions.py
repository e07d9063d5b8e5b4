"""Check that the questions of a run's evaluation suit its objective and fit into its windows."""

from poslab.config.request import Config, Request
from poslab.config.schema import CAUSAL, ConfigError, rescaled_by
from poslab.config.text import listing
from poslab.data.needles import ROOM as NEEDLES
from poslab.data.questions import ROOM
from poslab.objectives import build_objective

# Settings that only measurements of text use.
OF_TEXT = tuple(f"evaluate.{name}" for name in ("longest", "segments", "documents", "sliding_windows"))


def check_task(config: Config, request: Request) -> None:
    """Raise ConfigError if a run of a task has settings that measure text.

    A run that begins from another run may have them from that run.
    """
    if config.probe.tasks or config.evaluate.needles or rescaled_by(config):
        raise ConfigError(
            "probe, evaluate.needles and evaluate.rescale measure text: leave them out under a task"
        )
    names = [] if request.start else [text.partition("=")[0] for text in request.non_default_settings]
    unused = [name for name in names if name in OF_TEXT]
    if unused := [*unused, *(["primary"] if config.primary else [])]:  # `primary` is a loss on text
        raise ConfigError(
            f"{listing(unused)} cannot be set under a task, which is tested on its own sizes "
            "(objective.tested): leave them out"
        )


def check_probe(config: Config) -> None:
    """Raise ConfigError if the probe does not suit the run, or its questions do not fit into the windows."""
    if config.objective != CAUSAL:
        raise ConfigError("probe asks for the next token: choose objective=causal, or probe=none")
    if config.data.get("vocabulary") != "bytes":
        raise ConfigError("probe asks its questions in bytes: choose data.vocabulary=bytes, or probe=none")
    shortest = config.context_length // 2
    if shortest + 1 < ROOM:
        raise ConfigError(
            f"context_length={config.context_length} is too short for the probe: its questions need {ROOM} "
            f"tokens in L/2 + 1: choose context_length={2 * ROOM} or more, or probe=none"
        )


def check_needles(config: Config) -> None:
    """Raise ConfigError if needles do not suit the run, or do not fit into its windows."""
    objective = build_objective(config.objective)
    if config.objective != CAUSAL and (objective.causal or not objective.extra_tokens):
        raise ConfigError(
            "evaluate.needles asks for the next token or for masked tokens: choose objective=causal or "
            "masked, or evaluate.needles=0"
        )
    if config.data.get("vocabulary") != "bytes":
        raise ConfigError(
            "evaluate.needles asks in bytes: choose data.vocabulary=bytes, or evaluate.needles=0"
        )
    if config.context_length < NEEDLES:
        raise ConfigError(
            f"context_length={config.context_length} is too short for evaluate.needles, which takes "
            f"{NEEDLES} tokens: choose context_length={NEEDLES} or more, or evaluate.needles=0"
        )
