"""Refuse arguments of Hydra that would have no effect here, or another than in Hydra."""

import os
import re
from collections.abc import Sequence

from poslab.config.schema import ConfigError
from poslab.config.text import override_text

# Those of Hydra's settings that have their effect here.
SERVED = re.compile(
    r"hydra\.(sweeper\.params|searchpath|job\.env_set|job\.env_copy)\b|hydra/(sweeper|launcher)=poslab$"
)
# One of the two spellings of a flag stands for both.
NAMES = {"--multirun": "-m", "-c": "--cfg", "-i": "--info", "-h": "--help", "-p": "--package"}


def check_hydra_arguments(arguments: Sequence[str]) -> None:
    """Raise ConfigError for the first of a training command's arguments that would not have its effect."""
    _check_flags({argument.partition("=")[0] for argument in arguments if argument.startswith("-")})
    for argument in arguments:
        key = argument.lstrip("+~")
        if re.match(r"hydra([./@=]|$)", key) and not SERVED.match(key):
            raise ConfigError(
                f"{override_text(argument)}: it has no effect here. runs=DIR and reports=DIR name "
                "folders, launcher=local, inline, ray or slurm starts runs, -m tries every combination of "
                "the values given, and tune=learning_rate learning rates; of Hydra's settings these have an "
                "effect: hydra.sweeper.params, hydra.searchpath, hydra.job.env_set and hydra.job.env_copy"
            )
        name, _, value = key.partition("=")
        if name == "hydra.job.env_copy" and (missing := set(re.findall(r"\w+", value)) - os.environ.keys()):
            raise ConfigError(f"{name}: {min(missing)} is no variable of the environment")


def _check_flags(flags: set[str]) -> None:
    flags = {NAMES.get(flag, flag) for flag in flags}
    for printing in ("--cfg", "--info"):
        if {"-m", printing} <= flags and "--help" not in flags:
            raise ConfigError(
                f"{printing} prints the settings of one run: leave -m out, and give each setting one value"
            )
    prints = not flags.isdisjoint({"--cfg", "--help"})
    if "--package" in flags and not prints:
        raise ConfigError("--package belongs to --cfg: `--cfg job --package pos`")
    if "--resolve" in flags and not prints:
        raise ConfigError("--resolve belongs to --cfg: `--cfg job --resolve`")
    if "--experimental-rerun" in flags:
        raise ConfigError("--experimental-rerun has no effect here: the same command again resumes its runs")
