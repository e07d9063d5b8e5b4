"""Report what is wrong with a train.py command, in one line that says what to write instead.

`read_arguments` reads the arguments before Hydra does, and refuses those that Hydra would misread or answer
with a traceback. `explained` shortens the errors of Hydra itself.
"""

import re
from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Any, NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, QuotedString, ValueType
from hydra.errors import HydraException

from poslab.config.checking import OTHER_NAMES, did_you_mean
from poslab.config.compose import sections
from poslab.config.installation import typed
from poslab.config.option_files import Conf, absent, load
from poslab.config.request import Config, flat_settings
from poslab.config.schema import ConfigError, Options
from poslab.config.sweep import swept_in
from poslab.config.text import one_line, override_text

WHOLE = ("model", "recipe", "task")  # groups with files that set several sections
LISTED = ("callbacks", "logger")  # groups from which a run can take several options
NOT_SWEPT = ("reference", "primary", "question", "runs", "reports", "launcher", "sweep", "plan", "branches")


def read_arguments(arguments: Sequence[str], conf: Conf) -> list[str]:
    """Return the arguments with the flags before the settings: Hydra takes no setting after a later flag.

    Raise ConfigError if the arguments cannot form a command, whatever the values of the settings.
    """
    parser, groups = get_args_parser(), conf.groups()
    for argument in arguments:  # -pos=rope would be the flag -p with the value os=rope
        flag, is_set, _ = argument.partition("=")
        is_setting = flag.lstrip("-").partition(".")[0] in {*groups, *Config.model_fields}
        is_flag = not flag.startswith("-") or flag in parser._option_string_actions
        if not is_flag and (is_set or is_setting):
            bare = override_text(argument.lstrip("-"))
            raise ConfigError(f"settings have no dashes: write {bare if is_set else f'{bare}=VALUE'}")

    def refuse(message: str) -> NoReturn:
        raise ConfigError(f"{one_line(message)}; `{typed('train')} --help` shows how to write a command")

    parser.error = refuse  # type: ignore[method-assign]
    read = parser.parse_intermixed_args(list(arguments))
    flags = list(arguments)
    for override in read.overrides:
        flags.remove(override)
    if read.multirun and read.cfg:
        raise ConfigError("--cfg prints the settings of one run: leave -m out, one value for each setting")
    if read.package and not read.cfg:  # which would take the setting in `-p pos=alibi` without effect
        raise ConfigError("--package works only with --cfg: `--cfg job --package pos`")
    if read.experimental_rerun:  # which would unpickle a file
        raise ConfigError("--experimental-rerun has no effect here: run the same command again")
    if not (read.help or read.shell_completion):
        _check_overrides(read.overrides, groups, conf)
    return [*flags, *read.overrides]


def _check_overrides(overrides: Sequence[str], groups: set[str], conf: Conf) -> None:
    """Raise ConfigError if an override is wrong."""
    keys = [argument.partition("=")[0].lstrip("+~") for argument in overrides]
    for key in keys:
        if keys.count(key) > 1:  # Hydra would use the last one
            raise ConfigError(f"{key} appears twice: leave one out, or write both as {key}=A,B with -m")
    for argument in overrides:
        _check_override(argument, groups, conf)
        group, _, option = argument.partition("=")
        if group == "sweep" and "," not in option:
            path = conf.file(group, option)  # raises, where Hydra would ignore a missing one
            if option.startswith("wandb/"):  # --help lists these too
                raise ConfigError(f"{argument} is run by W&B itself: start it with `wandb sweep {path}`")
            for key, value in swept_in(load(path)).items():
                if key in groups and isinstance(value, str):
                    try:
                        _check_override(f"{key}={value}", groups, conf)
                    except ConfigError as error:
                        raise ConfigError(f"{path}: {error}") from None


def _check_override(argument: str, groups: set[str], conf: Conf) -> None:
    text = override_text(argument)
    key, is_set, _ = argument.lstrip("+").partition("=")
    if argument.startswith("~"):
        raise ConfigError(
            f"{text}: a setting cannot be removed: choose another value, or none or null if it has that value"
        )
    if not is_set or not key:
        options = [f"{group}={key}" for group in sorted(groups) if key in conf.options(group)]
        meant = (
            f"did you mean {' or '.join(options)}?"
            if options
            else "a setting is NAME=VALUE, such as pos=rope"
        )
        raise ConfigError(f"{text!r} is not understood: {meant}")
    try:
        override = OverridesParser.create().parse_override(argument)
    except HydraException:
        raise ConfigError(
            f"{text!r} cannot be parsed: check its commas, brackets and quotes; special characters need "
            f"{_quotes(key)}"
        ) from None
    group = override.key_or_group
    if argument.startswith("+") and (group in groups or group in known_settings(conf)):
        raise ConfigError(f"{text}: {group} exists already, write {text.lstrip('+')}")
    if group in groups:
        _check_option(text, group, override, conf)


def _check_option(text: str, group: str, override: Override, conf: Conf) -> None:
    """Raise ConfigError if the value of a group cannot be the name of an option."""
    if override.package is not None:
        raise ConfigError(f"{text}: choose an option of {group} with {group}=OPTION")
    for value in _values(override):
        if isinstance(value, list) and group in LISTED:
            continue
        if isinstance(value, list):
            names = ",".join(map(str, value))
            raise ConfigError(f"{text}: to run each of them, write -m {group}={names}")
        named = isinstance(value, str | QuotedString) and str(getattr(value, "text", value))
        if not named:
            options = ", ".join(conf.options(group))
            raise ConfigError(f"{text} names no option; the options are {options}")
        if group in (*WHOLE, "sweep") and named in conf.options(group):
            path = conf.file(group, named)
            if "@package" not in path.read_text():  # else Hydra puts everything into the section `group`
                raise ConfigError(f"{path} must begin with the line `# @package _global_`")


def _values(override: Override) -> Iterator[Any]:
    """Yield the value or swept values of a group; nothing if Hydra computes them (a range, a glob)."""
    if not override.is_sweep_override():
        yield override.value()
    elif override.is_choice_sweep() and override.value_type is not ValueType.GLOB_CHOICE_SWEEP:
        yield from override.sweep_iterator()


def explained(error: Exception, conf: Conf) -> str:
    """Return an error of Hydra or OmegaConf in one line, without the secrets in a setting that it repeats."""
    text = one_line(error)
    missing, options = getattr(error, "missing_cfg_file", None), getattr(error, "options", None)
    if missing and options:  # a MissingConfigException
        inside = str(missing).removeprefix("hydra/")
        group, name = inside.split("/", 1) if "/" in inside else ("config", inside)
        file = "; for your own text write data=text data.path=FILE" if group == "data" else ""
        return f"{absent(group, name, options)}{file}"
    if unloaded := re.search(r"Could not load '([^/']*)/([^']*)'", text):  # in a list of options
        return absent(unloaded[1], unloaded[2], conf.options(unloaded[1]))
    if listed := re.match(r"In '([^']*)': .*Cannot merge DictConfig with ListConfig", text):
        return f"{listed[1].replace('/', '=', 1)} is a list: an option file contains settings, NAME: VALUE"
    if several := re.match(r"(?:Ambiguous value for argument|Sweep parameters) '(.*?)' (?:1|requires)", text):
        key, argument = several[1].partition("=")[0], override_text(several[1])
        if key.partition(".")[0] in NOT_SWEPT:
            quotes = "" if key in conf.groups() else f"; text with commas needs {_quotes(key)}"
            return f"{argument} has several values, but a command has one {key}{quotes}"
        if key == "logger":  # no result depends on it, so it is not swept
            return f"{argument} has several values: write a list, {key}=[{argument.partition('=')[2]}]"
        return (
            f"{argument} has several values: to run each of them, add -m, "
            f"`{typed('train')} -m {quote(argument)}`; to pass a list, write {key}=[...]"
        )
    if unknown := re.match(r"Could not override '([^']*)'", text):
        return _unknown_setting(unknown[1], conf)
    return text


def _quotes(key: str) -> str:
    return f"both kinds of quotes, {key}='\"TEXT\"'"


def _unknown_setting(key: str, conf: Conf) -> str:
    known = known_settings(conf)
    if owners := known.get(key):  # but not with the options of this command
        return f"{key} is a setting of {', '.join(owners)} only; {_listed()}"
    section, _, name = key.rpartition(".")
    inside = [item.removeprefix(f"{section}.") for item in known if item.startswith(f"{section}.")]
    standard = {**OTHER_NAMES, "seeds": "seed"}.get(name.lower(), name.lower())  # tune.seeds is not meant
    # Seed for seed, although data.seed ends alike; and max_steps for trainer.max_steps.
    alike = [item for item in known if item == key.lower()] or [
        item for item in known if item.rpartition(".")[2] == standard
    ]
    if section and inside:
        group, near = section.partition(".")[0], did_you_mean(name, inside)
        if group == "callbacks":  # their classes can have more arguments than their files
            return f"{key} is not in its option file{near}; +{key}=VALUE passes it to the callback's class"
        return f"{key} is not a setting{near}; {_listed(group, f'those of {group}')}"
    if alike:
        near = f" (did you mean {' or '.join(alike[:2])}?)"
    else:
        near = did_you_mean(key, ["from", *(setting for setting in known if "." not in setting)])
    return f"{key} is not a setting{near}; {_listed()}"


def _listed(topic: str = "settings", listed: str = "every setting") -> str:
    return f"`{typed('train')} --help {topic}` lists {listed}"


def known_settings(conf: Conf) -> dict[str, list[str]]:
    """Return the name of every setting, with the options that have it: `pos=t5`, `pos=fire`."""
    shared = flat_settings({"data": load(conf.folders[0] / "config.yaml")["data"]})
    names: dict[str, list[str]] = {name: [] for name in (*_fields(Config), *shared, *sorted(conf.groups()))}
    for group in sorted(conf.groups() - {"sweep"}):
        for option, section in sections(conf, group).items():
            section.pop("defaults", None)
            for name in flat_settings(section if group in WHOLE else {group: section}):
                names.setdefault(name, []).append(f"{group}={option}")
    return names


def _fields(kind: type[Options], prefix: str = "") -> Iterator[str]:
    for name, field in kind.model_fields.items():
        yield f"{prefix}{name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, Options):
            yield from _fields(field.annotation, f"{prefix}{name}.")
