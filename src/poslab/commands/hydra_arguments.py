"""Refuse Hydra settings that would have no effect here, or another effect than in Hydra."""

import os
import re
from collections.abc import Sequence

from poslab.config.errors import UserError
from poslab.config.text import override_text

# The Hydra settings that have their usual effect here.
SERVED = re.compile(
    r"hydra\.(sweeper\.params|searchpath|job\.env_set|job\.env_copy)\b|hydra/(sweeper|launcher)=poslab$"
)


def check_hydra_arguments(arguments: Sequence[str]) -> None:
    """Raise UserError for the first argument of a training command that would not have its usual effect."""
    for argument in arguments:
        key = argument.lstrip("+~")
        if re.match(r"hydra[./@=]", key) and "=" in key and not SERVED.match(key):
            raise UserError(
                f"{override_text(argument)}: it has no effect here. runs=DIR and reports=DIR choose folders, "
                "launcher=local, inline, ray or slurm a launcher, -m runs every combination of values, and "
                "tune=learning_rate tunes learning rates. Hydra settings that have an "
                "effect: hydra.sweeper.params, hydra.searchpath, hydra.job.env_set and hydra.job.env_copy"
            )
        name, _, value = key.partition("=")
        if name == "hydra.job.env_copy" and (missing := set(re.findall(r"\w+", value)) - os.environ.keys()):
            raise UserError(f"{name}: {min(missing)} is not an environment variable")
