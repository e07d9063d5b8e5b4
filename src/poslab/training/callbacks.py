"""Lightning callbacks of a run, from its configuration: `callbacks=[early_stopping]`.

A section of the configuration's `callbacks` has the class as `_target_` and its arguments. It decides what a
run is: its settings and the code of its package are part of the run's identity.
"""

import pytorch_lightning as lightning

from poslab.config.classes import instantiated
from poslab.config.schema import RunConfig


def callbacks_of(config: RunConfig) -> list[lightning.Callback]:
    """The callbacks that a configuration names, in its order. Raises ConfigError where one is none."""
    return [
        instantiated(f"callbacks.{name}", section, lightning.Callback)
        for name, section in config.callbacks.items()
    ]
