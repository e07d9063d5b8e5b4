"""The checked configuration that Hydra composed, with the names that tables and legends show."""

import re
import shlex
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from poslab.config.checking import check
from poslab.config.installation import typed
from poslab.config.option_files import LABEL, Conf, label_in, load
from poslab.config.request import Config, Request, flat_settings, whole_numbers
from poslab.config.schema import CAUSAL, ConfigError, following_max_steps
from poslab.config.text import is_secret, override_text, without_secrets

# Config groups that affect a result, except pos and attention, which are in every label.
GROUPS = ("model", "data", "objective", "trainer", "evaluate", "probe")
# Groups with settings that the module of the chosen option defines.
PARTS = ("pos", "attention", "data", "objective")
LABELLED = ("pos", "attention")  # groups with options whose file may set a `label`

FILES = ("sweep", "task", "recipe")  # groups with files that set several sections

CONFIG_FLAGS = ("--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn")


def request_from(settings: Mapping[str, Any], choices: Mapping[str, str], conf: Conf) -> Request:
    """Return the request for the resolved `settings` that Hydra composed from the files in `conf`.

    `settings` does not include `from`, which is not a setting of the run itself. Raise a one-line ConfigError
    if a key is unknown or a value has a wrong type or range.
    """
    for group in FILES:  # Hydra ignores one that does not exist
        if choices.get(group) is not None:
            conf.file(group, choices[group])
    if choices.get("task") is not None and choices["objective"] != CAUSAL["kind"]:
        raise ConfigError(f"task={choices['task']} sets the objective: leave task or objective out")
    for group in {*PARTS, *GROUPS} - choices.keys():
        raise ConfigError(f"{group} has a list of options: in a sweep file write {group}: A,B")
    read = whole_numbers(settings)
    for group in PARTS:
        known = choices[group] in conf.options(group)
        read[group] = _as_written(read[group], load(conf.file(group, choices[group])) if known else {})
        if group in LABELLED:
            read[group].pop(LABEL, None)
    config = check(Config, read, "")
    for key in filter(is_secret, flat_settings(config.callbacks)):
        raise ConfigError(
            f"callbacks.{key} would be stored in the run's record: use an environment variable for it"
        )
    if config.question:  # which is stored in the study's record and sent to W&B
        config = config.model_copy(update={"question": without_secrets(config.question)})
    return Request(
        config,
        label(choices["pos"], config.pos, conf.file("pos", choices["pos"])),
        label(choices["attention"], config.attention, conf.file("attention", choices["attention"])),
        non_default_settings(config, choices, conf),
    )


def _as_written(section: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section with 1e6 as 1000000 if its file has an integer or a word."""
    return {
        key: int(value)
        if isinstance(value, float) and isinstance(written.get(key), int | str) and value.is_integer()
        else value
        for key, value in section.items()
    }


def non_default_settings(config: Config, choices: Mapping[str, str], conf: Conf) -> tuple[str, ...]:
    """Return the settings that affect the result, are not the default and in no label: `model=micro`."""
    main = load(conf.folders[0] / "config.yaml")
    default = {
        group: choice
        for item in main["defaults"]
        if isinstance(item, dict)
        for group, choice in item.items()
        if isinstance(choice, str)
    }
    default["trainer"] = choices["model"]  # each size has its own budget
    task = choices.get("task")
    sets = {} if task is None else dict(load(conf.file("task", task)))
    default |= {"data": "none", "model": "task"} if sets else {}
    sections = {group: dict(load(conf.file(group, choices[group]))) for group in GROUPS}
    sections["trainer"] = {**main["trainer"], **sections["trainer"]}
    changed = [f"{group}={choices[group]}" for group in GROUPS if choices[group] != default[group]]
    written = flat_settings(sections.pop("model"))  # it also sets context_length
    sections["trainer"]["max_steps"], steps = config.trainer.max_steps, sections["trainer"]["max_steps"]
    written |= flat_settings(following_max_steps(sections)) | {"trainer.max_steps": steps}
    for option in conf.options("callbacks"):
        written |= flat_settings({"callbacks": dict(load(conf.file("callbacks", option)))})
    written |= flat_settings({key: sets[key] for key in sets if key != "defaults"})
    changed += [f"task={task}"] * (task is not None) + [f"callbacks={name}" for name in config.callbacks]
    settings = config.result_settings()
    named = (*GROUPS, "context_length", "callbacks")
    settings = flat_settings({key: settings[key] for key in settings if key in named})
    changed += [
        f"{key}={_short(value)}"
        for key, value in settings.items()
        if value is not None and written.get(key) != value
    ]
    return tuple(changed)


def with_distinguishing_labels(requests: Sequence[Request]) -> list[Request]:
    """Return the requests of a command, each labelled with the settings that not all of them share."""
    common = set.intersection(*(set(request.non_default_settings) for request in requests))
    labels = (
        " ".join(item for item in request.non_default_settings if item not in common) for request in requests
    )
    return [
        replace(request, distinguishing_label=text) for request, text in zip(requests, labels, strict=True)
    ]


def label(choice: str, section: dict[str, Any], path: Path) -> str:
    """Return the option's label or name, then its changed settings: `rope`, `rope base=20000`."""
    written = flat_settings(load(path))
    changed = [
        f"{key}={_short(value)}" for key, value in flat_settings(section).items() if written.get(key) != value
    ]
    return " ".join([label_in(path) or choice, *changed])


def arms(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the sections in the files of one folder of a config group, by option name."""
    return {path.stem: deepcopy(dict(load(path))) for path in sorted(folder.glob("*.yaml"))}


def sections(conf: Conf, group: str) -> dict[str, dict[str, Any]]:
    """Return the sections in a config group's files from all folders, by option name."""
    return {option: deepcopy(dict(load(conf.file(group, option)))) for option in conf.options(group)}


def one_for_each_scheme(positions: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return one arm of conf/pos for each scheme: the arm with the scheme's name, else the first."""
    chosen: dict[str, str] = {}
    for name, section in positions.items():
        if section["scheme"] == name or section["scheme"] not in chosen:
            chosen[section["scheme"]] = name
    return {name: positions[name] for name in sorted(chosen.values())}


def command_line(overrides: Sequence[str], multirun: bool) -> str:
    """Return the command with these `overrides` as reports publish it, with `...` for each secret."""
    plain = [re.sub(r"=choice\(([^,]*)\)$", r"=\1", override) for override in overrides]  # one value
    arguments = [*config_flags(sys.argv[1:])[0], *map(override_text, plain)]
    return " ".join([typed("train"), shlex.join([*(["-m"] if multirun else []), *arguments])]).rstrip()


def config_flags(
    arguments: Iterable[str], names: Container[str] = CONFIG_FLAGS
) -> tuple[list[str], list[str]]:
    """Return the flags in `names` with their values, and the remaining arguments."""
    flags: list[str] = []
    remaining: list[str] = []
    following = iter(arguments)
    for argument in following:
        flag, equals, _ = argument.partition("=")
        if flag in names:
            flags += [argument] if equals else [argument, *islice(following, 1)]
        else:
            remaining.append(argument)
    return flags, remaining


def _short(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_short, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
