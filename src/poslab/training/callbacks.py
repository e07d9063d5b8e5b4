"""Lightning callbacks of a run, from its configuration: `callbacks=[early_stopping]`.

A section of the configuration's `callbacks` has the class as `_target_` and its arguments, as Hydra's
`instantiate` takes them. It decides what a run is: its settings and the code of its package are part of the
run's identity.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytorch_lightning as lightning

from poslab.config.schema import ConfigError, RunConfig
from poslab.config.text import one_line


def callbacks_of(config: RunConfig) -> list[lightning.Callback]:
    """The callbacks that a configuration names, in its order. Raises ConfigError where one is none."""
    return [_made(name, section) for name, section in config.callbacks.items()]


def _made(name: str, section: Mapping[str, Any]) -> lightning.Callback:
    from hydra.utils import instantiate

    try:
        callback = instantiate(dict(section))
    except Exception as error:  # whatever the code of another package raises
        raise ConfigError(f"callbacks.{name}: {one_line(error.__cause__ or error)}") from error
    if not isinstance(callback, lightning.Callback):
        kind = type(callback)
        raise ConfigError(
            f"callbacks.{name}: {kind.__module__}.{kind.__qualname__} is no pytorch_lightning.Callback"
        )
    return callback


def states_of(callbacks: Sequence[lightning.Callback]) -> dict[str, Any]:
    """What the callbacks resume from, by their `state_key`: tensors and plain values."""
    return {each.state_key: state for each in callbacks if (state := each.state_dict())}


def restore(callbacks: Sequence[lightning.Callback], states: Mapping[str, Any]) -> None:
    """Give each callback the state that it had."""
    for callback in callbacks:
        if callback.state_key in states:
            callback.load_state_dict(states[callback.state_key])
