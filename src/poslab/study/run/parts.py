"""Whether the parts of a run fit together, found out by building them; imports PyTorch."""

from typing import Any

from poslab.config.schema import ConfigError, RunConfig, longest_length
from poslab.evaluation.extrapolation import changes_rotation, rescalings
from poslab.model.gpt import build_parts


def check_parts(config: RunConfig) -> dict[str, Any]:
    """The sections `pos` and `attention` of a resolved configuration in one form: 500.0 for 500.

    Besides, what only the built parts know: `max_length`, and how many `parameters` they have of their own.

    It may use only the fields that `PARTS` in preparation.py names. Raises ConfigError where the parts do not
    fit together, PairError where scheme and attention do not.
    """
    _, scheme, attentions = build_parts(config)
    for rescaling in rescalings(config):
        if not scheme.rescale(rescaling):
            raise ConfigError(
                f"evaluate.rescale={config.evaluate.rescale} is for rotations, and "
                f"pos.scheme={scheme.name} has none: leave it out, or give it a command of its own"
            )
        scheme.rescale(None)
        if not changes_rotation(scheme, rescaling, longest_length(config)):
            raise ConfigError(
                f"evaluate.rescale={rescaling.method} changes nothing for pos.scheme={scheme.name} up to its "
                "longest evaluation: leave it out, or choose a longer evaluate.longest"
            )
    return {
        "pos": scheme.section(),
        "attention": {"kind": attentions[0].name, **attentions[0].options.model_dump()},
        "max_length": scheme.max_length,
        "parameters": sum(each.numel() for part in (scheme, *attentions) for each in part.parameters()),
    }
