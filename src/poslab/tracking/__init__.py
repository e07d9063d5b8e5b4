"""The record mirrored to W&B while and after a run trains, and read back from it.

The record stays the source of every result, and a failure here never ends a run: it is one line in its log.

A logger of Lightning needs none of this: `+logger.NAME={_target_: CLASS}` (study/run/loggers.py). Adding one
with charts and tables of its own:
1. A class with the methods of `Tracker` (guarded.py). Training waits for them; what they raise ends the
   tracker and not the run.
2. conf/logger/NAME.yaml with `name: NAME` and its options, and the name and options in `LoggerOptions`
   (config/request.py). They are no part of a run's identity: finished runs stay valid.
3. `open_tracker` below opens it by its name, and `first_place` gives its runs an id, if it needs one.
4. Its options among those that evaluate.py takes: `SETTABLE` in config/overrides.py, and its usage.
What is sent after a study's runs (study/sync.py), reading back (fetch/) and dashboards are for W&B alone;
another logger does without.
"""

import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from poslab.config.request import LoggerOptions
from poslab.record.schema import WandbPlace
from poslab.tracking.guarded import Guarded, Tracker
from poslab.tracking.login import uses_wandb
from poslab.tracking.send.card import Card
from poslab.tracking.send.offline import last_identifier


def in_wandb_sweep() -> bool:
    """Whether an agent of a W&B sweep runs this command: it has chosen the id of the run that it follows."""
    return bool(os.environ.get("WANDB_SWEEP_ID") and os.environ.get("WANDB_RUN_ID"))


def first_place(
    options: LoggerOptions, directory: Path, earlier: WandbPlace | None = None
) -> WandbPlace | None:
    """A run's place in W&B before it is opened: its id, in the manifest already if a crash follows.

    `earlier` is the place in an earlier manifest. Without one the id is that of W&B's files in `directory`,
    if there are any. An agent of a W&B sweep has chosen the id.
    """
    if not uses_wandb(options):
        return earlier
    if in_wandb_sweep():
        chosen = os.environ["WANDB_RUN_ID"]
        return earlier if earlier and earlier.id == chosen else WandbPlace(id=chosen)
    if earlier:
        return earlier
    return WandbPlace(id=last_identifier(directory) or secrets.token_hex(4))


def open_tracker(
    options: LoggerOptions,
    card: Card,
    directory: Path,
    manifest: str,
    place: WandbPlace,
    rows: Iterable[Mapping[str, Any]],
    stop: Callable[[str], None],
) -> Guarded:
    """The tracker that `options` names, for the run in `directory` that has `manifest` and `rows` so far.

    `place` is the run's place by its manifest; `stop` is called with the name of whoever stops the run, maybe
    from another thread.
    """

    def opening() -> Tracker:
        from poslab.tracking.send.live import LiveRun  # wandb takes a second to import

        return LiveRun(options, card, directory, str(place.id), manifest, rows, stop)

    return Guarded("W&B", opening)
