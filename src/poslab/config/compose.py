"""From what Hydra composed to a checked request, with the names that tables and legends show."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from poslab.config.request import Config, Request
from poslab.config.schema import ConfigError, check

GROUPS = ("model", "data", "trainer", "evaluate", "probe")  # whose options decide a result, beside the labels
# What sets a variable or is called a secret (`data.tokens` is a number of them), and such a word in a value.
SECRET = re.compile(
    r"[+~]*(hydra\.job\.env_.*|.*(key|token|(secret|passw(or)?d|credential)s?))", re.IGNORECASE
)
ASSIGNED = re.compile(
    r"(\w*(?:key|token|secret|passw(?:or)?d|credential)\w*=)\S+|(?<=://)[^/@\s]+(?=@)", re.IGNORECASE
)


def request_from(composed: DictConfig, choices: dict[str, str], arms: Path) -> Request:
    """The request in Hydra's `composed` configuration; `arms` is the folder conf/, for the options' files.

    Raises ConfigError, with one line, when a key is unknown or a value has a wrong type or range.
    """
    plain: Any = OmegaConf.to_container(composed, resolve=True)
    plain.pop("hydra", None)
    config = check(Config, plain, "")
    return Request(
        config,
        label(choices["pos"], config.pos, arms / "pos"),
        label(choices["attention"], config.attention, arms / "attention"),
        non_default_settings(config, choices, arms),
    )


def non_default_settings(config: Config, choices: dict[str, str], conf: Path) -> tuple[str, ...]:
    """What else decides the result and is not as the defaults have it: `model=micro`, `model.width=64`."""
    loaded: Any = OmegaConf.to_container(OmegaConf.load(conf / "config.yaml"))
    default = {
        group: choice
        for item in loaded["defaults"]
        if isinstance(item, dict)
        for group, choice in item.items()
    }
    default["trainer"] = choices["model"]  # each size has a budget that suits it
    written: dict[str, Any] = {}
    found = []
    for group in GROUPS:
        if choices[group] != default[group]:
            found.append(f"{group}={choices[group]}")
        section = OmegaConf.to_container(OmegaConf.load(conf / group / f"{choices[group]}.yaml"))
        written |= _flat(section if group == "model" else {group: section})
    asked = _flat(
        {key: value for key, value in config.result_settings().items() if key in (*GROUPS, "context_length")}
    )
    found += [
        f"{key}={_short(value)}"
        for key, value in asked.items()
        if value is not None and written.get(key) != value
    ]
    return tuple(found)


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
    written = _flat(OmegaConf.to_container(OmegaConf.load(path)))
    asked = _flat(section)
    changed = [f"{key}={_short(value)}" for key, value in asked.items() if written.get(key) != value]
    return " ".join([choice, *changed])


def arms(folder: Path) -> dict[str, dict[str, Any]]:
    """The sections that the files of a config group hold, by the option's name."""
    paths = sorted(folder.glob("*.yaml"))
    loaded: dict[str, Any] = {path.stem: OmegaConf.to_container(OmegaConf.load(path)) for path in paths}
    return loaded


def one_for_each_scheme(positions: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of the arms of conf/pos the one named as its scheme, or the first: the others differ in an option."""
    chosen: dict[str, str] = {}
    for name, section in positions.items():
        if section["scheme"] == name or section["scheme"] not in chosen:
            chosen[section["scheme"]] = name
    return {name: positions[name] for name in sorted(chosen.values())}


def _flat(section: Any, prefix: str = "") -> dict[str, Any]:
    """The values of a section and of sections inside it, by their dotted names."""
    found: dict[str, Any] = {}
    for key, value in section.items():
        name = f"{prefix}{key}"
        found |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return found


def command_line(overrides: Sequence[str], multirun: bool) -> str:
    """The command that asks for what `overrides` say. It is published: `...` stands for a secret."""
    told = [_without_secret(override) for override in overrides]
    return shlex.join(["python", "train.py", *(["-m"] if multirun else []), *told])


def _without_secret(override: str) -> str:
    key, is_set, value = override.partition("=")
    if SECRET.fullmatch(key):
        return f"{key}{is_set}..."
    return f"{key}{is_set}{ASSIGNED.sub(_hidden, value)}"


def _hidden(found: re.Match[str]) -> str:
    return f"{found[1] or ''}..."


def _short(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_short, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
