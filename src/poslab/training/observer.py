"""What training reports while it goes on, to whoever records or shows it."""

from collections.abc import Callable, Mapping
from typing import Any, NotRequired, Protocol, TypedDict

from torch import Tensor


class TrainedSums(TypedDict):
    """What is left of the sums of a training that has ended."""

    batches: str  # the digest of all batches


class Sums(TrainedSums, total=False):
    """What the module has added up since the last row."""

    nll_sum: Tensor
    token_count: int
    gradient_norm_sum: Tensor
    gradient_norm_count: int


class RandomState(TypedDict):
    """The states of the generators of random numbers, as tensors and plain values."""

    torch: Tensor
    cuda: list[Tensor]
    numpy: list[Any]
    python: list[Any]


class TrainedState(TypedDict):
    """What a run goes on from once it is trained: tensors and plain values."""

    step: int
    weights: Mapping[str, Tensor]
    validation_seconds: float
    sums: Sums
    ended: NotRequired[bool]  # whether this is all: a callback may end training before its last step


class State(TrainedState, total=False):
    """All that training needs to go on from a step, besides what is needed once it has ended."""

    optimizer: dict[str, Any]
    schedule: dict[str, Any]
    random: RandomState
    training_seconds: float
    last_row: list[Any]  # its step and its seconds
    callbacks: dict[str, Any]  # what callbacks resume from, by their keys


class DivergedError(RuntimeError):
    """The loss is not finite."""


class Observer(Protocol):
    """Called by training in the first of a run's processes."""

    def started(self) -> None:
        """Before the first step, after Lightning has installed its signal handlers."""

    def row(self, row: Mapping[str, Any]) -> None:
        """After each validation; `row` is a row of metrics.csv."""

    def step(self, step: int, loss: Callable[[], float], tokens_per_second: float) -> None:
        """After each step. `loss()`, in nats a token, waits for the device."""

    def maybe_checkpoint(self, step: int, state: Callable[[], State]) -> None:
        """After each step and its row, if it has one: `state()` is what training can go on from."""


class SilentObserver:
    """Does nothing, in the processes that write no record."""

    def started(self) -> None:
        pass

    def row(self, row: Mapping[str, Any]) -> None:
        pass

    def step(self, step: int, loss: Callable[[], float], tokens_per_second: float) -> None:
        pass

    def maybe_checkpoint(self, step: int, state: Callable[[], State]) -> None:
        pass
