"""A run's tracking in a thread of its own: training waits for none of it."""

import re
import sys
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any, Protocol

FINISH = 180.0  # seconds for what is left to send at the end; the rest stays on disk, to be synced

PATH = re.compile(r"(?<![\w:/])/(?:[^\s/'\"]+/)+")  # records are published, and say nothing of the machine


class Opened(Protocol):
    """What the thread speaks to."""

    @property
    def place(self) -> Mapping[str, Any]: ...

    def log(self, row: Mapping[str, Any]) -> None: ...

    def finish(self, manifest: str, exit_code: int) -> None: ...


class Background:
    """Tells an `Opened` what it is told, in the same order. Its first failure is said once and ends it."""

    def __init__(self, begin: Callable[[], Opened]) -> None:
        self._tasks: SimpleQueue[Callable[[Opened], None] | None] = SimpleQueue()
        self._place: Mapping[str, Any] | None = None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(begin,), name="tracking", daemon=True)
        self._thread.start()

    def place(self, wait: float = 0.0) -> Mapping[str, Any] | None:
        self._begun.wait(wait)
        return self._place

    def log(self, row: Mapping[str, Any]) -> None:
        self._tasks.put(lambda opened: opened.log(row))

    def finish(self, manifest: str, exit_code: int, wait: float | None = None) -> None:
        def end(opened: Opened) -> None:
            opened.finish(manifest, exit_code)
            self._place = {**opened.place, "complete": True}

        self._tasks.put(end)
        self._tasks.put(None)
        self._thread.join(FINISH if wait is None else wait)
        if self._thread.is_alive() and wait is None:
            _say(f"is not done after {FINISH:g} s; what it has not sent lies on disk, for `wandb sync`")

    def _work(self, begin: Callable[[], Opened]) -> None:
        try:
            opened = begin()
            self._place = opened.place
            self._begun.set()
            while (task := self._tasks.get()) is not None:
                task(opened)
        except Exception as error:
            self._place = {**(self._place or {}), "failed": told(error)}
            _say(f"failed, the run goes on without it: {told(error)}")
        finally:
            self._begun.set()


def told(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {PATH.sub('', ' '.join(str(error).split()))[:300]}"


def _say(what: str) -> None:
    print(f"W&B {what}", file=sys.stderr, flush=True)
