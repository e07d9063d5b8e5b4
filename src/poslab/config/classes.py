"""Build the objects that a configuration names by class (`_target_`), with Hydra's `instantiate`."""

import inspect
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from poslab.config.schema import ConfigError
from poslab.config.text import one_line

if TYPE_CHECKING:
    from pytorch_lightning import Callback

Kind = TypeVar("Kind")


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
    return callbacks


def check_callbacks(callbacks: "Iterable[Callback]") -> None:
    """Raise ConfigError if one is not a Lightning callback, or writes checkpoints or splits steps itself."""
    from pytorch_lightning.callbacks import Callback, Checkpoint, GradientAccumulationScheduler

    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise ConfigError(f"{callback!r} is not a Lightning callback: pass objects such as MyCallback()")
        if isinstance(callback, Checkpoint):
            raise ConfigError(
                f"{type(callback).__name__} makes Lightning write checkpoints, but poslab writes its own "
                "(trainer.checkpoint_seconds; the final weights are in checkpoint.pt): leave it out"
            )
        if isinstance(callback, GradientAccumulationScheduler):  # the batches would end before the last step
            raise ConfigError(
                "GradientAccumulationScheduler changes the batches of a step: set trainer.accumulate instead"
            )
