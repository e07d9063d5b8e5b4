"""The record mirrored to W&B while and after a run trains, and read back from it.

It mirrors the record, which stays the source of every result; nothing that happens here costs a run more than
the line that says so.
"""

import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from poslab.config.request import LoggerOptions
from poslab.record.schema import WandbPlace
from poslab.tracking.login import uses_wandb
from poslab.tracking.send.background import Background
from poslab.tracking.send.card import Card
from poslab.tracking.send.offline import last_identifier


class Tracker(Protocol):
    """What a run tells. A run that goes on after an interruption opens it anew with the rows so far."""

    def place(self, wait: float = 0.0) -> Mapping[str, Any] | None:
        """How to find the run again, for the manifest; None where it is not known within `wait` seconds."""

    def log(self, row: Mapping[str, Any]) -> None:
        """A row of metrics.csv, perhaps with memory_bytes."""

    def finish(self, manifest: str, exit_code: int, wait: float | None = None) -> None:
        """The run's end: the text of its manifest, beside which its files are all written.

        Returns after `wait` seconds at the latest, or once all is sent.
        """


def in_wandb_sweep() -> bool:
    """Whether an agent of a W&B sweep has given the command: it watches a run of its own choice."""
    return bool(os.environ.get("WANDB_SWEEP_ID") and os.environ.get("WANDB_RUN_ID"))


class NoTracker:
    """logger=local: the record alone."""

    def place(self, wait: float = 0.0) -> Mapping[str, Any] | None:
        return None

    def log(self, row: Mapping[str, Any]) -> None:
        pass

    def finish(self, manifest: str, exit_code: int, wait: float | None = None) -> None:
        pass


def first_place(
    options: LoggerOptions, directory: Path, earlier: WandbPlace | None = None
) -> WandbPlace | None:
    """What the manifest says of a run's tracking before it is opened: its id, so that a crash keeps it.

    `earlier` is what the manifest said before; the id of what is there already, where the manifest was lost.
    An agent of a W&B sweep has chosen an id, which it watches.
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
    place: WandbPlace | None,
    rows: Iterable[Mapping[str, Any]],
    stop: Callable[[str], None],
) -> Tracker:
    """The tracker that `options` names, for the run in `directory` that has `manifest` and `rows` so far.

    `place` is what the manifest says of it in W&B, and `stop` is called with who wants the run to end.
    """
    if place is None or not uses_wandb(options):
        return NoTracker()
    from poslab.tracking.send.process import opening

    return Background(opening(options, card, directory, str(place.id), manifest, rows), stop)
