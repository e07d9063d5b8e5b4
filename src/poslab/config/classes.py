"""Build the objects that a configuration names by class (`_target_`), with Hydra's `instantiate`."""

import inspect
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from poslab.config.schema import ConfigError
from poslab.config.text import one_line

if TYPE_CHECKING:
    from pytorch_lightning import Callback

Kind = TypeVar("Kind")
NUMBERS = {bool, int, float, NoneType}


def instantiated(key: str, section: Mapping[str, Any], kind: type[Kind]) -> Kind:
    """Return the object that the section `key` of a configuration describes.

    Raise a one-line ConfigError if it cannot be built or is not a `kind`.
    """
    from hydra.utils import instantiate

    try:
        instance = instantiate(dict(section))
    except Exception as error:  # another package's code may raise anything
        raise ConfigError(f"{key}: {one_line(error.__cause__ or error)}") from error
    if not isinstance(instance, kind):
        built = type(instance)
        expected = f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"
        raise ConfigError(f"{key}: {built.__module__}.{built.__qualname__} is not a {expected}")
    return instance


def locate(key: str, section: Mapping[str, Any]) -> None:
    """Import the class that the section `key` names, and check that it accepts the section's arguments.

    Raise ConfigError if it cannot be imported or does not accept them.
    """
    from hydra.utils import get_object

    arguments = {name: value for name, value in section.items() if not name.startswith("_")}
    try:
        target = get_object(section["_target_"])
        with suppress(ValueError):  # the class has no signature
            inspect.signature(target).bind(*section.get("_args_", ()), **arguments)
    except Exception as error:  # another package's code may raise anything
        raise ConfigError(f"{key}: {one_line(error)}") from error


def callbacks_of(sections: Mapping[str, Mapping[str, Any]]) -> "list[Callback]":
    """Return the callbacks of a configuration. Raise ConfigError if one cannot be built or used."""
    from pytorch_lightning import Callback  # takes seconds

    callbacks = [instantiated(f"callbacks.{name}", section, Callback) for name, section in sections.items()]
    check_callbacks(callbacks)
    for name, section in sections.items():
        _check_numbers(f"callbacks.{name}", section)
    return callbacks


def _check_numbers(key: str, section: Mapping[str, Any]) -> None:
    """Raise ConfigError if an argument should be a number and is not: few classes check that themselves."""
    from hydra.utils import get_object

    parameters: Mapping[str, inspect.Parameter] = {}
    with suppress(Exception):  # the class has no signature, or annotations that cannot be read
        parameters = inspect.signature(get_object(section["_target_"]), eval_str=True).parameters
    for name, value in section.items():
        kind = parameters[name].annotation if name in parameters else Any
        kinds = {*(get_args(kind) or [kind])}
        if {int, float} & kinds and kinds <= NUMBERS and isinstance(value, str | list):
            raise ConfigError(f"{key}.{name}={value!r}: input should be a valid number")


def check_callbacks(callbacks: "Iterable[Callback]") -> None:
    """Raise ConfigError if one is not a Lightning callback, or is one that writes checkpoints."""
    from pytorch_lightning.callbacks import Callback, Checkpoint

    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise ConfigError(f"{callback!r} is not a Lightning callback: pass objects such as MyCallback()")
        if isinstance(callback, Checkpoint):
            raise ConfigError(
                f"{type(callback).__name__} makes Lightning write checkpoints, but poslab writes its own "
                "(trainer.checkpoint_seconds; the final weights are in checkpoint.pt): leave it out"
            )
