"""What may be set when a trained model is evaluated again: in the names of train.py, all else is refused."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import OmegaConf

from poslab.config.request import LoggerOptions
from poslab.config.schema import FACTOR_METHODS, ConfigError, check

OF_EVALUATION = (
    "evaluate.longest",
    "evaluate.segments",
    "evaluate.sliding_windows",
    "evaluate.rescale",
    "evaluate.rescale_factor",
    "trainer.accelerator",
    "trainer.precision",
)
GROUPS = ("data", "logger")
SETTABLE = (*OF_EVALUATION, "data", "data.path and such", "logger", "logger.project", "logger.entity")


def evaluation_overrides(arguments: Sequence[str]) -> dict[str, Any]:
    """The settings that `arguments` name, by dotted key, read as train.py reads them. Raises ConfigError."""
    found: dict[str, Any] = {}
    for argument in arguments:
        try:
            override = OverridesParser.create().parse_override(argument)
        except HydraException as error:
            raise ConfigError(f"{argument!r} is not understood: {' '.join(str(error).split())}") from None
        key = override.key_or_group
        if key in found:
            raise ConfigError(f"{key} is given twice")
        _check(key, override)
        found[key] = override.value()
    return found


def _check(key: str, override: Override) -> None:
    known = key in OF_EVALUATION or key.partition(".")[0] in GROUPS
    if not known or key in ("data.source", "data.vocabulary") or override.package is not None:
        raise ConfigError(
            f"{override.input_line!r} is no setting of an evaluation, or training has fixed it; there are "
            f"{', '.join(SETTABLE)}"
        )
    if override.type is not OverrideType.CHANGE or override.is_sweep_override():
        raise ConfigError(f"{override.input_line!r}: an evaluation takes one value a setting")


def with_overrides(settings: Mapping[str, Any], wanted: Mapping[str, Any], conf: Path) -> dict[str, Any]:
    """The trained configuration `settings` with what is `wanted`; `conf` is the folder of the options."""
    changed = {**settings, "evaluate": dict(settings["evaluate"]), "trainer": dict(settings["trainer"])}
    for key in OF_EVALUATION:
        if key in wanted:
            section, _, name = key.partition(".")
            changed[section][name] = wanted[key]
    _leave_out_what_rescale_does_not_need(changed["evaluate"], wanted)
    changed["data"] = _section("data", settings["data"], wanted, conf)
    return changed


def logger(wanted: Mapping[str, Any], conf: Path) -> LoggerOptions:
    """Where the evaluation is tracked; as train.py would, where nothing is said. Raises ConfigError."""
    return check(LoggerOptions, _section("logger", {}, {"logger": "wandb", **wanted}, conf), "logger")


def _leave_out_what_rescale_does_not_need(evaluate: dict[str, Any], wanted: Mapping[str, Any]) -> None:
    """Remove settings that only a rotation needed which the evaluation leaves out, unless they are given."""
    rescale = wanted.get("evaluate.rescale")
    if not isinstance(rescale, list):
        return
    if not FACTOR_METHODS & set(rescale) and "evaluate.rescale_factor" not in wanted:
        evaluate["rescale_factor"] = "auto"
    if "drop" not in rescale:
        evaluate["recalibration_steps"] = 0


def _section(group: str, before: Mapping[str, Any], wanted: Mapping[str, Any], conf: Path) -> dict[str, Any]:
    section: Any = dict(before)
    if group in wanted:
        path = conf / group / f"{wanted[group]}.yaml"
        options = sorted(option.stem for option in path.parent.glob("*.yaml"))
        if str(wanted[group]) not in options:
            raise ConfigError(f"{group}={wanted[group]} does not exist; there are {', '.join(options)}")
        section = OmegaConf.to_container(OmegaConf.load(path))
    own = {key.partition(".")[2]: value for key, value in wanted.items() if key.startswith(f"{group}.")}
    return {**section, **own}
