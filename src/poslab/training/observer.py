"""The reports of a running training, for code that records or shows them."""

from collections.abc import Callable, Mapping
from typing import Any

State = Mapping[str, Any]  # Lightning's checkpoint: tensors and plain values


class DivergedError(RuntimeError):
    """The loss is not finite."""


class Observer:
    """Called by training in the first of a run's processes; this base class does nothing."""

    def started(self) -> None:
        """Before the first step, after Lightning has installed its signal handlers."""

    def row(self, row: Mapping[str, Any]) -> None:
        """After each validation; `row` is a row of metrics.csv."""

    def step(self, step: int, loss: Callable[[], float], tokens_per_second: float) -> None:
        """After each step. `loss()`, in nats per token, waits for the device."""

    def checkpoint_due(self, step: int) -> bool:
        """Whether to call `checkpoint`; asked after each step and its row, if it has one."""
        return False

    def checkpoint(self, step: int, state: State) -> None:
        """After a step; training can resume from `state`."""
