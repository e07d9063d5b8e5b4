"""A run in W&B while this process trains it."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import wandb

from poslab.config.request import LoggerOptions
from poslab.tracking.login import forget_client, kill_client
from poslab.tracking.send.card import Card
from poslab.tracking.send.run import TrackedRun, own_variables


class LiveRun:
    """A tracker (poslab.tracking.guarded.Tracker), whose process of W&B's ends with it."""

    def __init__(
        self,
        options: LoggerOptions,
        card: Card,
        directory: Path,
        number: str,
        manifest: str,
        rows: Iterable[Mapping[str, Any]],
        stop: Callable[[str], None],
    ) -> None:
        """The arguments are those of `TrackedRun`."""
        self._open = ExitStack()
        self._open.enter_context(own_variables(directory))
        self._open.callback(forget_client)
        self._alone = True  # whether no run of the caller's depends on W&B's process
        try:
            self._alone = wandb.setup().most_recent_active_run is None
            self._run = TrackedRun(options, card, directory, number, manifest, rows, stop, training=True)
        except BaseException:
            self.abandon()
            raise
        self.place: Mapping[str, Any] = self._run.place

    def log(self, row: Mapping[str, Any]) -> None:
        self._run.log(row)

    def finish(self, manifest: str, exit_code: int) -> None:
        with self._open:
            self._run.finish(manifest, exit_code)

    def abandon(self) -> None:
        if self._alone:
            kill_client()
        self._open.close()
