"""Build objects that a configuration names by their class, `_target_`, with Hydra's `instantiate`."""

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

    Raises ConfigError, one line, where it cannot be built or is no `kind`.
    """
    from hydra.utils import instantiate

    try:
        instance = instantiate(dict(section))
    except Exception as error:  # whatever the code of another package raises
        raise ConfigError(f"{key}: {one_line(error.__cause__ or error)}") from error
    if not isinstance(instance, kind):
        found = type(instance)
        wanted = f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"
        raise ConfigError(f"{key}: {found.__module__}.{found.__qualname__} is no {wanted}")
    return instance


def locate(key: str, section: Mapping[str, Any]) -> None:
    """Import what the section `key` of a configuration names, and see whether it takes these arguments.

    Raise ConfigError where it does not.
    """
    from hydra.utils import get_object

    arguments = {name: value for name, value in section.items() if not name.startswith("_")}
    try:
        target = get_object(section["_target_"])
        with suppress(ValueError):  # of a class that has no signature
            inspect.signature(target).bind(*section.get("_args_", ()), **arguments)
    except Exception as error:  # whatever the code of another package raises
        raise ConfigError(f"{key}: {one_line(error)}") from error


def callbacks_of(sections: Mapping[str, Mapping[str, Any]]) -> "list[Callback]":
    """Return the callbacks of a configuration. Raises ConfigError where one cannot be built, or not serve."""
    from pytorch_lightning import Callback  # takes seconds

    callbacks = [instantiated(f"callbacks.{name}", section, Callback) for name, section in sections.items()]
    check_callbacks(callbacks)
    return callbacks


def check_callbacks(callbacks: "Iterable[Callback]") -> None:
    """Raise ConfigError where one is no callback, or one of Lightning's that write checkpoints."""
    from pytorch_lightning.callbacks import Callback, Checkpoint

    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise ConfigError(f"{callback!r} is no callback of Lightning: give objects, such as MyCallback()")
        if isinstance(callback, Checkpoint):
            raise ConfigError(
                f"{type(callback).__name__} asks Lightning for checkpoints, and poslab writes its own "
                "(trainer.checkpoint_seconds; the final weights are in checkpoint.pt): leave it out"
            )
