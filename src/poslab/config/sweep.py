"""The configurations of a sweep's runs, as Hydra composes them, but composed once for all seeds of an arm.

Hydra takes tens of milliseconds per run, because it reads every option file and parses every override again.
Runs that differ only in their seed have the same files, and Hydra applies a seed by setting one value. So
Hydra composes only the first of these runs, and the others are the same configuration with another seed.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from poslab.config.option_files import Conf, conf_of, load
from poslab.config.schema import ConfigError

SETTING = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)=(.*)", re.DOTALL)
SEED = re.compile(r"seed=(0|[1-9][0-9]{0,17})")  # only what Hydra reads as an integer
SETS = {"task": "objective", "recipe": "pos"}  # the section that the options of a group set
SWEPT = "hydra.sweeper.params"  # the key of the swept settings in a sweep file


def for_each_run(arguments: Sequence[str], conf: Conf) -> list[str]:
    """Return the arguments of a study, with `pos.rate=choice(1)` for `pos.rate=1` if it sweeps `pos`.

    Hydra composes the study without its swept settings, so with the default option of `pos`, which may not
    have `rate`. Settings with `choice` are applied only to the runs. Raise HydraException.
    """
    values = {key: value for key, _, value in (argument.partition("=") for argument in arguments)}
    swept = {key for key, value in values.items() if "," in value}
    if preset := values.get("sweep"):
        with suppress(ConfigError):  # raised again when Hydra composes
            swept |= set(swept_in(load(conf.file("sweep", preset))))
    swept |= {section for group, section in SETS.items() if group in swept}
    return [_for_runs_only(argument, swept & conf.groups()) for argument in arguments]


def swept_in(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of each swept setting in the content of a sweep file."""
    swept = OmegaConf.select(OmegaConf.create({**content}), SWEPT)
    params: Any = OmegaConf.to_container(swept) if isinstance(swept, DictConfig) else {}
    return dict(params)


def _for_runs_only(argument: str, groups: set[str]) -> str:
    match = SETTING.fullmatch(argument)
    if match is None or match[1].partition(".")[0] not in groups or "." not in match[1]:
        return argument
    override = OverridesParser.create().parse_override(argument)
    return argument if override.is_sweep_override() else f"{match[1]}=choice({match[2]})"


@dataclass(frozen=True)
class Composed:
    """The resolved configuration of a run, without Hydra's own section."""

    settings: Mapping[str, Any]
    choices: Mapping[str, str]  # the option of each group
    conf: Conf  # the option files


class Composer:
    """Composes one run after another, with the same result as `compose` (Hydra's) for each run."""

    def __init__(self, compose: Callable[[list[str]], DictConfig]) -> None:
        self._compose = compose
        self._composed: dict[tuple[str, ...], DictConfig] = {}  # by the overrides other than the seed

    def composed(self, overrides: Sequence[str]) -> Composed:
        """Return the configuration of the run with these overrides. Raise Hydra's errors."""
        seeds = [int(match[1]) for text in overrides if (match := SEED.fullmatch(text))]
        seedless = tuple(text for text in overrides if not SEED.fullmatch(text))
        if not seeds:
            return _from_hydra(self._compose(list(overrides)))
        if seedless not in self._composed:
            self._composed[seedless] = self._compose(list(overrides))
        OmegaConf.update(self._composed[seedless], "seed", seeds[0])  # other settings may refer to it
        return _from_hydra(self._composed[seedless])


def _from_hydra(config: DictConfig) -> Composed:
    """Return the configuration without Hydra's own section, which may refer to a running job."""
    runtime = config.hydra.runtime
    settings = {
        str(name): OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        for name, value in config.items()
        if name != "hydra"
    }
    return Composed(settings, dict(runtime.choices), conf_of(runtime.config_sources))
