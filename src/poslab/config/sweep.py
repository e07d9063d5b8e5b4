"""The configurations of a sweep's runs, as Hydra composes them, but composed once for similar runs.

Hydra takes tens of milliseconds per run, since it reads every option file and parses every override again.
Runs that differ only in numbers (`seed=0`, `seed=1`) have the same files, and Hydra applies such an override
by setting one leaf. So it composes the first of them, and the others are that configuration with other
numbers. Whatever is not that simple is left to Hydra: options, words, lists, sections, settings that are
added or removed, and configurations that refer from one setting to another.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from poslab.config.option_files import Conf, conf_of
from poslab.config.schema import ConfigError

SETTING = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)=(.*)", re.DOTALL)
KEY = re.compile(r"[+~]*([^=@]*)")  # of any override
# An override that sets a number, written as Hydra reads it, too: its own parser is slow.
NUMBER = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)=(-?(?:0|[1-9][0-9]{0,17}))(\.[0-9]+)?(e-?[0-9]+)?")
SWEPT = "hydra.sweeper.params"  # in a sweep's file


def for_each_run(arguments: Sequence[str], conf: Conf) -> list[str]:
    """Return the arguments of a study, with `pos.rate=1` as `pos.rate=choice(1)` where it sweeps `pos`.

    Hydra composes the study without what it sweeps, so with the default option, which may not have the
    setting. It leaves swept settings to the runs.
    """
    given = {key: value for key, _, value in (argument.partition("=") for argument in arguments)}
    swept = {key for key, value in given.items() if "," in value}
    if preset := given.get("sweep"):
        with suppress(ConfigError):  # which composing raises again
            swept |= set(OmegaConf.select(OmegaConf.load(conf.file("sweep", preset)), SWEPT, default={}))
    return [_left_to_the_runs(argument, swept & conf.groups()) for argument in arguments]


def _left_to_the_runs(argument: str, groups: set[str]) -> str:
    match = SETTING.fullmatch(argument)
    if match is None or match[1].partition(".")[0] not in groups or "." not in match[1]:
        return argument
    try:
        override = OverridesParser.create().parse_override(argument)
    except HydraException:  # which Hydra raises again
        return argument
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
        self._templates: dict[tuple[str, ...], Composed] = {}

    def composed(self, overrides: Sequence[str]) -> Composed:
        """Return the configuration of the run with these overrides. Raises what Hydra raises."""
        numbers = _numbers(overrides)
        # What runs of one template share: all overrides, without the value where they set a number.
        shape = tuple(numbers[place][0] if place in numbers else text for place, text in enumerate(overrides))
        template = self._templates.get(shape)
        if template is not None:
            settings = template.settings
            for key, value in numbers.values():
                settings = _with_leaf(settings, key, value)
            return replace(template, settings=settings)
        config = self._compose(list(overrides))
        composed = _from_hydra(config)
        if not _refers(config) and all(_is_leaf(*number, composed) for number in numbers.values()):
            self._templates[shape] = composed
        return composed


def _numbers(overrides: Sequence[str]) -> dict[int, tuple[str, float]]:
    """Return key and value of the overrides that set a number which no other touches, by their places."""
    keys = [match[1] if (match := KEY.match(text)) else "" for text in overrides]
    numbers: dict[int, tuple[str, float]] = {}
    for place, text in enumerate(overrides):
        if match := NUMBER.fullmatch(text):
            key, whole, *rest = match.groups()
            other_keys = keys[:place] + keys[place + 1 :]
            if not any(f"{key}.".startswith(f"{section}.") for section in other_keys):
                numbers[place] = key, float(text.partition("=")[2]) if any(rest) else int(whole)
    return numbers


def _is_leaf(key: str, number: float, composed: Composed) -> bool:
    """Return whether Hydra has set one leaf, rather than chosen an option."""
    value: Any = composed.settings
    for name in key.split("."):
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return type(value) is type(number) and value == number and key not in composed.choices


def _with_leaf(settings: Mapping[str, Any], key: str, number: float) -> dict[str, Any]:
    name, *inner = key.split(".", 1)
    return {**settings, name: _with_leaf(settings[name], inner[0], number) if inner else number}


def _from_hydra(config: DictConfig) -> Composed:
    """Return the configuration without Hydra's own part, which may refer to facts of a running job."""
    runtime = config.hydra.runtime
    settings = {name: _plain(config, name) for name in map(str, config) if name != "hydra"}
    return Composed(settings, dict(runtime.choices), conf_of(runtime.config_sources))


def _plain(config: DictConfig, name: str) -> Any:
    if OmegaConf.is_missing(config, name):
        return "???"
    value = config[name]
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _refers(config: DictConfig) -> bool:
    """Return whether a setting takes another one's value, so that one override can change several."""
    raw: Any = OmegaConf.to_container(config, resolve=False)
    return any("${" in repr(value) for name, value in raw.items() if name != "hydra")
