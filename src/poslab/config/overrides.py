"""The settings of an evaluation. Their names are those of training; any other setting is an error."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException

from poslab.config.option_files import Conf, load
from poslab.config.request import WANDB, logger_sections
from poslab.config.schema import FACTOR_METHODS, ConfigError
from poslab.config.text import one_line

OF_EVALUATION = (
    "evaluate.longest",
    "evaluate.segments",
    "evaluate.documents",
    "evaluate.sliding_windows",
    "evaluate.needles",
    "evaluate.rescale",
    "evaluate.rescale_factor",
    "trainer.accelerator",
    "trainer.precision",
)
GROUPS = ("data", "logger")
OF_LOGGER = ("logger.project", "logger.entity", "logger.tags")
SETTABLE = (*OF_EVALUATION, "data", "data.path and the like", "logger", *OF_LOGGER)


def check_texts(overrides: Sequence[object]) -> None:
    """Raise ConfigError if a library call receives an override that is not a string, such as a list."""
    for override in overrides:
        if not isinstance(override, str):
            raise ConfigError(f"{override!r} is not a string: pass each setting as one, 'pos=rope', 'seed=1'")


def evaluation_overrides(arguments: Sequence[str]) -> dict[str, Any]:
    """Return `arguments` by dotted key, parsed as in train.py. Raise ConfigError if a setting is wrong."""
    overrides: dict[str, Any] = {}
    for argument in arguments:
        try:
            override = OverridesParser.create().parse_override(argument)
        except HydraException as error:
            raise ConfigError(f"{argument!r} cannot be parsed: {one_line(error)}") from None
        key = override.key_or_group
        if key in overrides:
            raise ConfigError(f"{key} appears twice")
        _check(key, override)
        overrides[key] = override.value()
    return overrides


def _check(key: str, override: Override) -> None:
    known = key in OF_EVALUATION or key.partition(".")[0] in GROUPS
    # A tokenizer file may have moved; whether it is the same one is checked with the text.
    moved = key == "data.vocabulary" and str(override.value()).endswith(".json")
    if not known or (key in ("data.source", "data.vocabulary") and not moved) or override.package is not None:
        raise ConfigError(
            f"{override.input_line!r} cannot be set for an evaluation; these can: {', '.join(SETTABLE)}"
        )
    if override.type is not OverrideType.CHANGE or override.is_sweep_override():
        raise ConfigError(f"{override.input_line!r}: an evaluation takes one value for each setting")


def with_overrides(settings: Mapping[str, Any], overrides: Mapping[str, Any], conf: Conf) -> dict[str, Any]:
    """Return the settings of a trained run with the `overrides` applied; `conf` has the option files."""
    changed = _with(settings, {key: overrides[key] for key in overrides if not _is_for_loggers(key)}, conf)
    # Reset the settings of rotations that this evaluation does not use.
    rescale = overrides.get("evaluate.rescale")
    if isinstance(rescale, list):
        if not FACTOR_METHODS & set(rescale) and "evaluate.rescale_factor" not in overrides:
            changed["evaluate"]["rescale_factor"] = "auto"
        if "drop" not in rescale:
            changed["evaluate"]["recalibration_steps"] = 0
    return changed


def logger(overrides: Mapping[str, Any], conf: Conf, default: str) -> dict[str, dict[str, Any]]:
    """Return the loggers of an evaluation, by default those of the option `default` in conf/logger.

    Raise ConfigError if one is wrong, or is not W&B.
    """
    chosen = {"logger": default, **{key: overrides[key] for key in overrides if _is_for_loggers(key)}}
    try:
        sections = logger_sections(_with({}, chosen, conf)["logger"])
    except ValueError as error:
        raise ConfigError(f"logger: {error}") from None
    if any(section.get("name") != WANDB for section in sections.values()):
        raise ConfigError("an evaluation can be sent only to W&B: choose logger=wandb or logger=local")
    return sections


def _is_for_loggers(key: str) -> bool:
    return key.partition(".")[0] == "logger"


def _with(settings: Mapping[str, Any], overrides: Mapping[str, Any], conf: Conf) -> dict[str, Any]:
    """Return the settings with the options in `overrides` loaded, then its single settings applied."""
    changed = deepcopy(dict(settings))
    for key in sorted(overrides, key=lambda key: "." in key):
        section, _, name = key.partition(".")
        if name:
            changed[section][name] = overrides[key]
        else:
            changed[section] = dict(load(conf.file(section, overrides[key])))
    return changed
