"""Refuse arguments of Hydra that would have no effect here, or another than in Hydra."""

import re
from collections.abc import Mapping, Sequence

from poslab.config.schema import ConfigError
from poslab.config.text import override_text

OWN = ("hydra/sweeper=poslab", "hydra/launcher=poslab")
# Hydra's own settings that have their effect here.
SERVED = re.compile(r"hydra\.(sweeper\.params|searchpath|job\.env_set|job\.env_copy)\b")
# The beginning of any other key of Hydra's, and what to give instead; the first that fits counts.
INSTEAD: Mapping[str, str] = {
    r"hydra\.(run|sweep|job\.chdir|output_subdir|runtime\.(output_dir|cwd))\b": (
        "Hydra's folders have no effect here: runs=DIR says where runs lie, and reports=DIR where reports do"
    ),
    r"hydra[./]launcher\b": (
        "Hydra's launchers lose runs where a process dies: launcher=local, inline, ray or slurm runs them"
    ),
    r"hydra[./]sweeper\b": (
        "other sweepers are not served: -m tries every combination of the values given, and "
        "tune=learning_rate the learning rates that suit each arm"
    ),
    r"hydra\.(verbose|job_logging|hydra_logging)\b|hydra/(job|hydra)_logging\b": (
        "Hydra's logging has no effect here: a run's progress is in the terminal and its losses are in its "
        "directory, in metrics.csv"
    ),
    r"hydra\.job\.name\b": (
        "Hydra's name of a job has no effect here: study=NAME names a study, and a run is named by its arm, "
        "its seed and a hash of its settings"
    ),
    r"hydra([./@]|$)": (
        "it has no effect here; of Hydra's own settings these have one: hydra.sweeper.params, "
        "hydra.searchpath, hydra.job.env_set and hydra.job.env_copy"
    ),
}
FLAG_GROUPS = {
    "-m": {"-m", "--multirun"},
    "--cfg": {"-c", "--cfg"},
    "--info": {"-i", "--info"},
    "--help": {"-h", "--help"},
}


def check_hydra_arguments(arguments: Sequence[str]) -> None:
    """Raise ConfigError for the first of a training command's arguments that would not have its effect."""
    _check_flags({argument.partition("=")[0] for argument in arguments if argument.startswith("-")})
    for argument in arguments:
        key = argument.lstrip("+~").partition("=")[0]
        if argument in OWN or SERVED.match(key):
            continue
        for pattern, message in INSTEAD.items():
            if re.match(pattern, key):
                raise ConfigError(f"{override_text(argument)}: {message}")


def _check_flags(flags: set[str]) -> None:
    given = [name for name, spellings in FLAG_GROUPS.items() if flags & spellings]
    for printing in ("--cfg", "--info"):
        if "-m" in given and printing in given and "--help" not in given:
            raise ConfigError(
                f"{printing} prints the settings of one run: leave -m out, and give each setting one value"
            )
    if flags & {"-p", "--package"} and not {"--cfg", "--help"} & {*given}:
        raise ConfigError("--package belongs to --cfg: `--cfg job --package pos`")
    if "--resolve" in flags and not {"--cfg", "--help"} & {*given}:
        raise ConfigError("--resolve belongs to --cfg: `--cfg job --resolve`")
    if "--experimental-rerun" in flags:
        raise ConfigError("--experimental-rerun has no effect here: the same command again resumes its runs")
