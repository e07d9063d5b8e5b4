"""Reports from training while it runs, for code that records or shows them."""

from collections.abc import Callable, Mapping
from typing import Any

State = Mapping[str, Any]  # Lightning's checkpoint: tensors and plain values


class DivergedError(RuntimeError):
    """Error raised if the loss is not finite."""


class Observer:
    """Hooks that training calls in the first process of a run; this base class does nothing."""

    def started(self) -> None:
        """Called before the first step, after Lightning has installed its signal handlers."""

    def row(self, row: Mapping[str, Any]) -> None:
        """Called after each validation; `row` is a row of metrics.csv."""

    def step(self, step: int, loss: Callable[[], float], tokens_per_second: float) -> None:
        """Called after each step. `loss()` waits for the device and returns nats per token."""

    def checkpoint_due(self, step: int) -> bool:
        """Return whether to call `checkpoint`. Called after each step, after `row` if the step has one."""
        return False

    def checkpoint(self, step: int, state: State) -> None:
        """Called after a step; training can resume from `state`."""
