"""The configuration that Hydra composed, checked, with the names that tables and legends show."""

import shlex
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from poslab.config.request import Config, Request, flat_settings, whole_numbers
from poslab.config.schema import ConfigError, check, following_max_steps
from poslab.config.text import override_text, without_secrets

# Config groups that decide a result, other than pos and attention, which every label names.
GROUPS = ("model", "data", "trainer", "evaluate", "probe")


def request_from(settings: Mapping[str, Any], choices: Mapping[str, str], arms: Path) -> Request:
    """The request in the resolved `settings` that Hydra composed; `arms` is the folder conf/.

    Raises ConfigError, with one line, when a key is unknown or a value has a wrong type or range.
    """
    config = check(Config, whole_numbers(settings), "")
    if config.question:  # a study's record and W&B say it
        config = config.model_copy(update={"question": without_secrets(config.question)})
    return Request(
        config,
        label(choices["pos"], config.pos, arms / "pos"),
        label(choices["attention"], config.attention, arms / "attention"),
        non_default_settings(config, choices, arms),
    )


def non_default_settings(config: Config, choices: Mapping[str, str], conf: Path) -> tuple[str, ...]:
    """What decides the result, is not in a label and is not the default: `model=micro`, `model.width=64`."""
    default = {
        group: choice
        for item in _load(conf / "config.yaml")["defaults"]
        if isinstance(item, dict)
        for group, choice in item.items()
    }
    default["trainer"] = choices["model"]  # each size has a budget that suits it
    sections = {group: dict(_load(conf / group / f"{choices[group]}.yaml")) for group in GROUPS}
    changed = [f"{group}={choices[group]}" for group in GROUPS if choices[group] != default[group]]
    written = flat_settings(sections.pop("model"))  # which sets context_length too
    sections["trainer"]["max_steps"], steps = config.trainer.max_steps, sections["trainer"]["max_steps"]
    written |= flat_settings(following_max_steps(sections)) | {"trainer.max_steps": steps}
    settings = config.result_settings()
    settings = flat_settings({key: settings[key] for key in settings if key in (*GROUPS, "context_length")})
    changed += [
        f"{key}={_short(value)}"
        for key, value in settings.items()
        if value is not None and written.get(key) != value
    ]
    return tuple(changed)


def with_distinguishing_labels(requests: Sequence[Request]) -> list[Request]:
    """The requests of a command, each labelled with those of its settings that others lack."""
    common = set.intersection(*(set(each.non_default_settings) for each in requests)) if requests else set()
    return [
        replace(
            each,
            distinguishing_label=" ".join(item for item in each.non_default_settings if item not in common),
        )
        for each in requests
    ]


def label(choice: str, section: dict[str, Any], folder: Path) -> str:
    """The option's name, followed by what differs from its file: `rope`, `rope base=20000`."""
    path = folder / f"{choice}.yaml"
    if not path.is_file():
        raise ConfigError(f"{folder.name}={choice} has no file {path}")
    written = flat_settings(_load(path))
    changed = [
        f"{key}={_short(value)}" for key, value in flat_settings(section).items() if written.get(key) != value
    ]
    return " ".join([choice, *changed])


def arms(folder: Path) -> dict[str, dict[str, Any]]:
    """The sections that the files of a config group hold, by the option's name."""
    return {path.stem: deepcopy(dict(_load(path))) for path in sorted(folder.glob("*.yaml"))}


def _load(path: Path) -> Mapping[str, Any]:
    return _parsed(path.read_text())


@lru_cache  # by the content: a sweep has thousands of runs with the same few files
def _parsed(text: str) -> Mapping[str, Any]:
    content: Any = OmegaConf.to_container(OmegaConf.load(StringIO(text)))
    assert isinstance(content, dict)
    return content


def one_for_each_scheme(positions: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """One arm of conf/pos for each scheme: the one of the scheme's name, else the first."""
    chosen: dict[str, str] = {}
    for name, section in positions.items():
        if section["scheme"] == name or section["scheme"] not in chosen:
            chosen[section["scheme"]] = name
    return {name: positions[name] for name in sorted(chosen.values())}


def command_line(overrides: Sequence[str], multirun: bool) -> str:
    """The command with these `overrides`, which reports publish: `...` stands for a secret."""
    shown = map(override_text, overrides)
    return shlex.join(["python", "train.py", *(["-m"] if multirun else []), *shown])


def _short(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_short, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
