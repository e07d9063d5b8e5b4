"""All settings of a run with their descriptions, for --help and docs/settings.md.

The descriptions come from the fields of the schemas, and the defaults from the files in conf/.
"""

import importlib
import pkgutil
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import hydra
from omegaconf import OmegaConf
from pydantic.fields import FieldInfo

from poslab.config.checking import did_you_mean
from poslab.config.compose import sections as sections_of
from poslab.config.option_files import Conf
from poslab.config.registry import find, named_in
from poslab.config.request import FROM, WANDB, Config, flat_settings
from poslab.config.schema import ConfigError, Options
from poslab.data.sources import TextSource
from poslab.loggers import LOGGERS, RunLogger
from poslab.model.attention import Mixer
from poslab.model.positions import Scheme
from poslab.objectives import Objective
from poslab.study.launch.contract import LAUNCHERS, Launcher

# The groups with options that choose a module: the key that names it, its base class and its package.
PARTS: dict[str, tuple[str, Any, str]] = {
    "pos": ("scheme", Scheme, "poslab.model.positions"),
    "attention": ("kind", Mixer, "poslab.model.attention"),
    "data": ("source", TextSource, "poslab.data.sources"),
    "objective": ("kind", Objective, "poslab.objectives"),
    "logger": ("name", RunLogger, LOGGERS),
    "launcher": ("name", Launcher, LAUNCHERS),
}
NULL = "null"
BY_OPTION = "set by its option"


@dataclass(frozen=True)
class Setting:
    """A setting as a user types it."""

    name: str  # trainer.max_steps
    values: str  # its type and range, or its choices
    default: str  # the value under the default options
    description: str
    owners: tuple[str, ...] = ()  # the modules that have it, if only some of the group have: rope, xpos


def settings(conf: Conf) -> dict[str, list[Setting]]:
    """Return all settings by group, with "" for those without a group; `conf` has the option files."""
    defaults = _defaults(conf.folders[0])
    sections: dict[str, list[Setting]] = {"": []}
    for name, field in Config.model_fields.items():
        if name in PARTS:
            sections[name] = list(_of_parts(name, defaults, conf))
        elif isinstance(field.annotation, type) and issubclass(field.annotation, Options):
            fields = field.annotation.model_fields.items()
            sections[name] = [_setting(f"{name}.{inner}", of, defaults) for inner, of in fields]
        else:
            sections[""].append(_setting(name, field, defaults))
    name, values, description = FROM
    sections[""].append(Setting(name, values, defaults.get(name, ""), description))
    return sections


def _of_parts(group: str, defaults: Mapping[str, str], conf: Conf) -> Iterator[Setting]:
    """Yield the settings of a group's modules; modules that describe a setting alike share one entry."""
    selector, contract, package = PARTS[group]
    found = pkgutil.iter_modules(importlib.import_module(package).__path__)
    tasks = (task.get(group) for task in sections_of(conf, "task").values())
    files = (*_options(group, conf).values(), *tasks)
    named = {name for section in files for name in named_in(section, selector)}  # also from other packages
    modules = sorted({item.name for item in found if not item.ispkg} | named - {"local"})
    yield Setting(
        f"{group}.{selector}",
        " | ".join(modules),
        defaults.get(f"{group}.{selector}", ""),
        "the module; the option chooses it",
    )
    rows: dict[tuple[str, str, str], list[str]] = {}
    for module in modules:
        part = find(module, contract, package, f"{group}.{selector}")
        kind: type[Options] = getattr(part, "options_class", part)
        for name, field in kind.model_fields.items():
            if name != selector:
                row = (f"{_section(group, module, conf)}.{name}", _values(field), field.description or "")
                rows.setdefault(row, []).append(module)
    for (name, values, description), owners in sorted(rows.items()):
        default = _default_of(name, owners, conf) or defaults.get(name, "")
        yield Setting(name, values, default, description, tuple(owners))


def _section(group: str, module: str, conf: Conf) -> str:
    """Return the section with a module's settings: the group, or one inside it for loggers except W&B."""
    if group != "logger" or module == WANDB:
        return group
    options = (name for name, section in _options(group, conf).items() if module in named_in(section, "name"))
    return f"{group}.{next(options, module)}"


def _options(group: str, conf: Conf) -> dict[str, dict[str, Any]]:
    """Return the sections of a group's options, except loggers that name a class instead of a module."""
    sections = sections_of(conf, group)
    if group == "logger":  # its files have a section by the logger's name, so that several can be combined
        sections = {name: file.get(name, file) for name, file in sections.items()}
    return {name: section for name, section in sections.items() if "_target_" not in section}


def _default_of(name: str, owners: list[str], conf: Conf) -> str:
    """Return the default of these modules, or BY_OPTION if their option files differ in it."""
    group, key = name.partition(".")[0], name.rpartition(".")[2]
    by_option = {
        option: _text(section[key])
        for option, section in _options(group, conf).items()
        if section.get(PARTS[group][0]) in owners and key in section
    }
    preferred = {value for option, value in by_option.items() if option in owners} or {*by_option.values()}
    return next(iter(preferred), "") if len(preferred) <= 1 else BY_OPTION


def _setting(name: str, field: FieldInfo, defaults: Mapping[str, str]) -> Setting:
    return Setting(name, _values(field), defaults.get(name, ""), field.description or "")


def _defaults(conf: Path) -> dict[str, str]:
    """Return the settings of a run without arguments."""
    with hydra.initialize_config_dir(str(conf.resolve()), version_base="1.3"):
        composed: Any = OmegaConf.to_container(hydra.compose("config"), resolve=True)
    return {name: _text(value) for name, value in {**composed, **flat_settings(composed)}.items()}


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str({None: NULL, True: "true", False: "false"}[value])
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_text(item)}' for name, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _values(field: FieldInfo) -> str:
    """Return the valid values of a setting: `auto | true | false`, `whole number (at least 1)`."""
    bounds = {type(bound).__name__: bound for bound in field.metadata}
    limits = [
        f"{word} {_text(getattr(bounds[kind], attribute))}"
        for kind, attribute, word in (
            ("Ge", "ge", "at least"),
            ("Gt", "gt", "above"),
            ("Le", "le", "at most"),
            ("Lt", "lt", "below"),
        )
        if kind in bounds
    ]
    return " ".join([_type(field.annotation), *([f"({', '.join(limits)})"] if limits else [])])


def _type(annotation: Any) -> str:
    names = {int: "whole number", float: "number", str: "text", bool: "true | false", type(None): NULL}
    if annotation in names:
        return names[annotation]
    inner = get_args(annotation)
    origin = getattr(annotation, "__origin__", None)
    if origin is list:
        return f"list of {_type(inner[0])}"
    if origin is dict:
        return "section"
    if any(isinstance(item, type) or get_args(item) for item in inner):
        return " | ".join(map(_type, inner))
    return " | ".join(map(_text, inner))


def help_text(conf: Conf, topics: list[str]) -> str:
    """Return settings as text for a terminal: those with a group or a name in `topics`.

    The topic `settings` stands for all of them. Raise ConfigError for an unknown topic.
    """
    sections = settings(conf)
    names = [row.name for rows in sections.values() for row in rows]
    entries: list[str] = []
    for topic in topics:
        rows = [
            row for group, part in sections.items() for row in part if topic in ("settings", group, row.name)
        ]
        if not rows and topic in conf.groups():
            options = ", ".join(conf.options(topic))
            raise ConfigError(f"--help {topic}: {topic}=OPTION sets several settings; there are {options}")
        if not rows:
            near = did_you_mean(topic, ["settings", *filter(None, sections), *names])
            groups = ", ".join(filter(None, sections))
            raise ConfigError(
                f"--help {topic}: there is no such setting{near}; write --help settings, or one of {groups}"
            )
        entries += map(_entry, rows)
    return "\n".join(entries) + "\n"


def _entry(row: Setting) -> str:
    owners = f" [{', '.join(row.owners)}]" if row.owners else ""
    head = f"{row.name}={row.default}{owners}" if row.default not in ("", BY_OPTION) else row.name + owners
    body = re.sub(r"\s+", " ", f"{row.values}. {row.description}")
    return head + "\n" + textwrap.fill(body, 100, initial_indent="    ", subsequent_indent="    ")
