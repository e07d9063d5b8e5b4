"""The configurations of a sweep's runs, as Hydra composes them, but composed once for the seeds of an arm.

Hydra takes tens of milliseconds per run, since it reads every option file and parses every override again.
Runs that differ only in their seed have the same files, and Hydra applies such an override by setting one
leaf. So it composes the first of them, and the others are that configuration with another seed.
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
SEED = re.compile(r"seed=(0|[1-9][0-9]{0,17})")  # as Hydra reads a whole number, too
SETS = {"task": "objective", "recipe": "pos"}  # the section that an option of each group gives its settings
SWEPT = "hydra.sweeper.params"  # in a sweep's file


def for_each_run(arguments: Sequence[str], conf: Conf) -> list[str]:
    """Return the arguments of a study, with `pos.rate=1` as `pos.rate=choice(1)` where it sweeps `pos`.

    Hydra composes the study without what it sweeps, so with the default option, which may not have the
    setting. It leaves swept settings to the runs. Raises HydraException.
    """
    given = {key: value for key, _, value in (argument.partition("=") for argument in arguments)}
    swept = {key for key, value in given.items() if "," in value}
    if preset := given.get("sweep"):
        with suppress(ConfigError):  # which composing raises again
            content = OmegaConf.create({**load(conf.file("sweep", preset))})
            swept |= set(OmegaConf.select(content, SWEPT, default={}))
    swept |= {section for group, section in SETS.items() if group in swept}
    return [_left_to_the_runs(argument, swept & conf.groups()) for argument in arguments]


def _left_to_the_runs(argument: str, groups: set[str]) -> str:
    match = SETTING.fullmatch(argument)
    if match is None or match[1].partition(".")[0] not in groups or "." not in match[1]:
        return argument
    override = OverridesParser.create().parse_override(argument)
    return argument if override.is_sweep_override() else f"{match[1]}=choice({match[2]})"


@dataclass(frozen=True)
class Composed:
    """A run's configuration, resolved, without Hydra's own part."""

    settings: Mapping[str, Any]
    choices: Mapping[str, str]  # the option of each group
    conf: Conf  # the files that the options are


class Composer:
    """Composes run after run as `compose`, which is Hydra's, would compose each."""

    def __init__(self, compose: Callable[[list[str]], DictConfig]) -> None:
        self._compose = compose
        self._composed: dict[tuple[str, ...], DictConfig] = {}  # by the overrides besides the seed

    def composed(self, overrides: Sequence[str]) -> Composed:
        """Return the configuration of the run with these overrides. Raises what Hydra raises."""
        seeds = [int(match[1]) for text in overrides if (match := SEED.fullmatch(text))]
        besides = tuple(text for text in overrides if not SEED.fullmatch(text))
        if not seeds:
            return _from_hydra(self._compose(list(overrides)))
        if besides not in self._composed:
            self._composed[besides] = self._compose(list(overrides))
        OmegaConf.update(self._composed[besides], "seed", seeds[0])  # others may take its value
        return _from_hydra(self._composed[besides])


def _from_hydra(config: DictConfig) -> Composed:
    """Return the configuration without Hydra's own part, which may refer to facts of a running job."""
    runtime = config.hydra.runtime
    settings = {
        str(name): OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        for name, value in config.items()
        if name != "hydra"
    }
    return Composed(settings, dict(runtime.choices), conf_of(runtime.config_sources))
