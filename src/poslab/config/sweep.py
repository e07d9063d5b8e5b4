"""The configurations of a sweep's runs, as Hydra composes them, but composed once for similar runs.

Hydra takes tens of milliseconds per run, since it reads every option file and parses every override again.
Runs that differ only in the values of single settings (`seed=0`, `seed=1`) have the same files, and Hydra
applies such an override by setting one leaf. So it composes the first of them, and the others are that
configuration with other leaves. Whatever is not that simple is left to Hydra: options, lists, sections,
settings that are added or removed, and configurations that refer from one setting to another.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from poslab.config.option_files import Conf, conf_of
from poslab.config.schema import ConfigError

SETTING = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)=(.*)", re.DOTALL)
KEY = re.compile(r"[+~]*([^=@]*)")  # of any override
INTEGER = re.compile(r"0|[1-9][0-9]{0,17}")  # as in Hydra's grammar, which has a slow parser
SWEPT = "hydra.sweeper.params"  # in a sweep's file
LEAVES = (bool, int, float, str, type(None))


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


@dataclass(frozen=True)
class _Setting:
    """An override that sets one leaf, if its key is not an option's."""

    key: str
    value: Any


class Composer:
    """Composes run after run as `compose`, which is Hydra's, would compose each."""

    def __init__(self, compose: Callable[[list[str]], DictConfig]) -> None:
        self._compose = compose
        self._templates: dict[tuple[str, ...], Composed] = {}
        self._no_leaves: set[str] = set()  # keys of options and sections
        self._read: dict[str, _Setting | None] = {}

    def composed(self, overrides: Sequence[str]) -> Composed:
        """Return the configuration of the run with these overrides. Raises what Hydra raises."""
        settings = self._settings(overrides)
        template = self._templates.get(_shape(overrides, settings))
        if template is not None:
            changed = template.settings
            for setting in settings.values():
                changed = _with_leaf(changed, setting)
            return replace(template, settings=changed)
        config = self._compose(list(overrides))
        composed = _from_hydra(config)
        if not _refers(config):
            self._no_leaves |= {item.key for item in settings.values() if not _is_leaf(item, composed)}
            self._templates[_shape(overrides, self._settings(overrides))] = composed
        return composed

    def _settings(self, overrides: Sequence[str]) -> dict[int, _Setting]:
        """Return the overrides that set one leaf which no other override touches, by their places."""
        keys = [match[1] if (match := KEY.match(text)) else "" for text in overrides]
        settings = {}
        for place, text in enumerate(overrides):
            setting = self._setting(text)
            if setting is not None and setting.key not in self._no_leaves:
                other_keys = keys[:place] + keys[place + 1 :]
                if not any(f"{setting.key}.".startswith(f"{section}.") for section in other_keys):
                    settings[place] = setting
        return settings

    def _setting(self, text: str) -> _Setting | None:
        match = SETTING.fullmatch(text)
        if match is None or match[1].startswith("hydra."):
            return None
        if INTEGER.fullmatch(match[2]):
            return _Setting(match[1], int(match[2]))
        if text not in self._read:
            self._read[text] = _parsed(text)
        return self._read[text]


def _parsed(text: str) -> _Setting | None:
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException:  # which Hydra raises again, where it composes the run
        return None
    plain = override.type is OverrideType.CHANGE and override.package is None
    if not plain or override.is_sweep_override():
        return None
    value = override.value()
    if not isinstance(value, LEAVES) or (isinstance(value, str) and ("${" in value or value == "???")):
        return None
    return _Setting(override.key_or_group, value)


def _shape(overrides: Sequence[str], settings: Mapping[int, _Setting]) -> tuple[str, ...]:
    """Return what runs of one template share: all overrides, without the value where they set one leaf."""
    return tuple(settings[place].key if place in settings else text for place, text in enumerate(overrides))


def _is_leaf(setting: _Setting, composed: Composed) -> bool:
    """Return whether Hydra has set one leaf, rather than chosen an option."""
    value: Any = composed.settings
    for name in setting.key.split("."):
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    same = type(value) is type(setting.value) and value == setting.value
    return same and setting.key not in composed.choices


def _with_leaf(settings: Mapping[str, Any], setting: _Setting) -> dict[str, Any]:
    name, *inner = setting.key.split(".", 1)
    value = _with_leaf(settings[name], replace(setting, key=inner[0])) if inner else setting.value
    return {**settings, name: value}


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
