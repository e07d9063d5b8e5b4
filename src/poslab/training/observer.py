"""Who is told how training goes."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

State = dict[str, Any]  # what training has reached: tensors and plain values


class DivergedError(RuntimeError):
    """A loss that is no number."""


class Observer(Protocol):
    """In the first of a run's processes."""

    def started(self) -> None:
        """The first step is about to be taken; Lightning has set its signal handlers."""

    def row(self, row: Mapping[str, Any]) -> None:
        """A row of metrics.csv."""

    def step(self, step: int, loss: Callable[[], float], tokens_per_second: float) -> None:
        """A step is done; reading its loss, in nats a token, waits for the device."""

    def maybe_checkpoint(self, step: int, state: Callable[[], State]) -> None:
        """After `step`, and its row if it has one: `state()` is what training can go on from."""


class SilentObserver:
    """Does nothing with it: in the processes that keep no record."""

    def started(self) -> None:
        pass

    def row(self, row: Mapping[str, Any]) -> None:
        pass

    def step(self, step: int, loss: Callable[[], float], tokens_per_second: float) -> None:
        pass

    def maybe_checkpoint(self, step: int, state: Callable[[], State]) -> None:
        pass
