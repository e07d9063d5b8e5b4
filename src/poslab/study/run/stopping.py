"""Ctrl-C and SIGTERM: an end at the next safe place, within seconds; a second one ends at once."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

PATIENCE = 2.5  # seconds that a step has to end before it is broken off
AGAIN = 0.5  # seconds until Stopped is raised again, where a library has swallowed it
SAME_REQUEST = 1.0  # seconds within which a second SIGTERM is taken for the first
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """The process was asked to end. Not an Exception: nothing that handles failures may swallow it."""

    def __init__(self, number: int, requested_by: str | None = None) -> None:
        super().__init__(f"stopped by {requested_by or signal.Signals(number).name}")
        self.number = number
        self.requested_by = requested_by

    @property
    def status(self) -> int:
        """The exit status by the shell's convention: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.number


class Stopper:
    """Raises Stopped where a signal finds the program, or, while it is held, at the next `check`."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.requested_by: str | None = None
        self.patience = PATIENCE
        self._deferred = False
        self._uninterrupted = False
        self._requested_at = 0.0
        self._installed = False

    @contextmanager
    def installed(self) -> Iterator[Self]:
        """Inside, the signals are this stopper's."""
        before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)}
        self._installed = True
        self.reinstall_handlers()
        try:
            yield self
        finally:
            self._installed = False
            self.disarm()
            for number, handler in before.items():
                signal.signal(number, handler)

    def reinstall_handlers(self) -> None:
        """Take the signals again, where they are ours and a library has taken them meanwhile."""
        if self._installed:
            for number in SIGNALS:
                signal.signal(number, self._on_signal)
            signal.signal(signal.SIGALRM, self._on_patience)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """What runs inside reaches a `check` soon, or is broken off after `patience`."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    @contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """What runs inside comes to its end, however long it takes: such as a checkpoint that is written."""
        self._uninterrupted = True
        try:
            yield
        finally:
            self._uninterrupted = False

    def check(self) -> None:
        """Raises Stopped if a signal came."""
        if self.number is not None:
            raise Stopped(self.number, self.requested_by)

    def request(self, who: str) -> None:
        """End as at a SIGTERM, from any thread, on behalf of `who`."""
        if self._installed and self.number is None:
            self.requested_by = who
            os.kill(os.getpid(), signal.SIGTERM)

    def disarm(self) -> None:
        """Stopped has arrived where it is handled: it is not raised any more."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            # A scheduler may send one SIGTERM by two ways.
            if number != signal.SIGTERM or time.monotonic() - self._requested_at > SAME_REQUEST:
                os._exit(128 + number)
            return
        self.number, self._requested_at = number, time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, self.patience if self._deferred else AGAIN, AGAIN)
        if not self._deferred:
            raise Stopped(number, self.requested_by)

    def _on_patience(self, number: int, frame: FrameType | None) -> None:
        if not self._uninterrupted:
            self.check()
