"""Lightning callbacks of a run, from its configuration: `callbacks=[early_stopping]`.

A section of the configuration's `callbacks` has the class as `_target_` and its arguments, as Hydra's
`instantiate` takes them. It decides what a run is: its settings and the code of its package are part of the
run's identity.
"""

from collections.abc import Mapping
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
