"""Ctrl-C and SIGTERM: the program ends at the next safe point, within seconds; a second one ends it at once.

In a caller's own program, only the run ends.
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

AGAIN_SECONDS = 0.5  # after which Stopped is raised again, in case a library has caught it
SAME_REQUEST_SECONDS = 1.0  # a second SIGTERM within this time counts as the same request
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """The process was asked to end. It is not an Exception, so that handlers of failures do not catch it."""

    def __init__(self, number: int, requested_by: str | None = None) -> None:
        super().__init__(f"stopped by {requested_by or signal.Signals(number).name}")
        self.number = number
        self.requested_by = requested_by

    @property
    def status(self) -> int:
        """The exit status by the shell's convention: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.number


class Stopper:
    """Turns the signals into Stopped, which is raised at once, or inside `deferred` at the next `check`."""

    def __init__(self, ends_process: bool = True) -> None:
        self._ends_process = ends_process  # whether a second signal ends the process
        self.number: int | None = None
        self.requested_by: str | None = None
        self.step_seconds = Launcher.step_seconds
        self._deferred = False
        self._uninterrupted = False
        self._requested_at = 0.0
        self._installed = False

    @contextmanager
    def installed(self) -> Iterator[Self]:
        """Handle the signals in the block, if this is the main thread, then restore the earlier handlers."""
        if threading.current_thread() is not threading.main_thread():  # only the main thread can handle them
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
        """Install the handlers again if this stopper is installed: a library may have replaced them."""
        if self._installed:
            for number in SIGNALS:
                signal.signal(number, self._on_signal)
            signal.signal(signal.SIGALRM, self._on_timer)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """In the block, raise Stopped at the next `check`, or after `step_seconds` without one."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    @contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """In the block, never raise Stopped, however long it takes: for writing a checkpoint."""
        self._uninterrupted = True
        try:
            yield
        finally:
            self._uninterrupted = False

    def check(self) -> None:
        """Raise Stopped if a signal was received."""
        if self.number is not None:
            raise Stopped(self.number, self.requested_by)

    def request(self, who: str) -> None:
        """Stop as upon SIGTERM, on behalf of `who`. This may be called from any thread."""
        if self._installed and self.number is None:
            self.requested_by = who
            os.kill(os.getpid(), signal.SIGTERM)

    def disarm(self, stop: Stopped) -> None:
        """Stop raising Stopped, since `stop` has reached its handler; a second signal ends the program."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self.number is None:  # a run in this process has its own stopper, which received the signal
            self.number, self._requested_at = stop.number, time.monotonic()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            # A scheduler may send the same SIGTERM in two ways.
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
