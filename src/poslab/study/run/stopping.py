"""Ctrl-C and SIGTERM: the program ends at the next safe place, in seconds; a second one ends it at once.

In a program of the caller's only the run ends.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

from poslab.study.launch.contract import Launcher

AGAIN_SECONDS = 0.5  # until Stopped is raised again, in case a library has caught it
SAME_REQUEST_SECONDS = 1.0  # within which a second SIGTERM counts as the first
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """The process was asked to end. Not an Exception, so that no handler of failures catches it."""

    def __init__(self, number: int, requested_by: str | None = None) -> None:
        super().__init__(f"stopped by {requested_by or signal.Signals(number).name}")
        self.number = number
        self.requested_by = requested_by

    @property
    def status(self) -> int:
        """The exit status by the shell's convention: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.number


class Stopper:
    """Turns the signals into Stopped: raised at once, or inside `deferred` at the next `check`."""

    def __init__(self, ends_process: bool = True) -> None:
        self._ends_process = ends_process  # at a second signal
        self.number: int | None = None
        self.requested_by: str | None = None
        self.step_seconds = Launcher.step_seconds
        self._deferred = False
        self._uninterrupted = False
        self._requested_at = 0.0
        self._installed = False

    @contextmanager
    def installed(self) -> Iterator[Self]:
        """Handle the signals inside, if this is the main thread; restore the earlier handlers afterwards."""
        if threading.current_thread() is not threading.main_thread():  # no other may handle them
            yield self
            return
        before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)}
        self._installed = True
        self.reinstall_handlers()
        try:
            yield self
        finally:
            self._installed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

    def reinstall_handlers(self) -> None:
        """Install the handlers again, which a library may have replaced, where this stopper is installed."""
        if self._installed:
            for number in SIGNALS:
                signal.signal(number, self._on_signal)
            signal.signal(signal.SIGALRM, self._on_timer)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Raise Stopped not at once but at the next `check`, or after `step_seconds` without one."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    @contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """Raise nothing inside, however long it takes: for a checkpoint that is being written."""
        self._uninterrupted = True
        try:
            yield
        finally:
            self._uninterrupted = False

    def check(self) -> None:
        """Raise Stopped if a signal has come."""
        if self.number is not None:
            raise Stopped(self.number, self.requested_by)

    def request(self, who: str) -> None:
        """End as at a SIGTERM, at the request of `who`. May be called from any thread."""
        if self._installed and self.number is None:
            self.requested_by = who
            os.kill(os.getpid(), signal.SIGTERM)

    def disarm(self, stop: Stopped) -> None:
        """Stop raising Stopped: `stop` has reached the code that handles it, and a second signal ends all."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self.number is None:  # a run in this process has a stopper of its own, to which the signal came
            self.number, self._requested_at = stop.number, time.monotonic()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            # A scheduler may send one SIGTERM in two ways.
            if number != signal.SIGTERM or time.monotonic() - self._requested_at > SAME_REQUEST_SECONDS:
                if not self._ends_process:
                    raise Stopped(number)
                os._exit(128 + number)
            return
        self.number, self._requested_at = number, time.monotonic()
        signal.setitimer(
            signal.ITIMER_REAL, self.step_seconds if self._deferred else AGAIN_SECONDS, AGAIN_SECONDS
        )
        if not self._deferred:
            raise Stopped(number, self.requested_by)

    def _on_timer(self, number: int, frame: FrameType | None) -> None:
        if not self._uninterrupted:
            self.check()
