"""A run's tracking, by a process of its own: training waits for none of it, nor for its interpreter."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import IO, Any

FINISH = 180.0  # seconds for what is left to send at the end; the rest stays on disk, to be synced

PATH = re.compile(r"(?<![\w:/])/(?:[^\s/'\"]+/)+")  # records are published, and say nothing of the machine


class Background:
    """Sends `poslab.tracking.send.process` what is to be shown, in order; ends at its first failure.

    Importing W&B and opening a run are seconds of Python, and a row is some milliseconds: a thread would keep
    the interpreter from training, which asks for it at every operation.
    """

    def __init__(self, opening: Mapping[str, Any], stop: Callable[[str], None]) -> None:
        """`opening` is the process's first line; `stop` is called with who wants the run to end."""
        self._stop = stop
        self._lines: SimpleQueue[Mapping[str, Any]] = SimpleQueue()
        self._lines.put(opening)
        self._process: subprocess.Popen[bytes] | None = None
        self._place: Mapping[str, Any] | None = None
        self._opened, self._ended = threading.Event(), threading.Event()
        threading.Thread(target=self._work, name="tracking", daemon=True).start()

    def place(self, wait: float = 0.0) -> Mapping[str, Any] | None:
        self._opened.wait(wait)
        return self._place

    def log(self, row: Mapping[str, Any]) -> None:
        self._lines.put({"row": row})

    def finish(self, manifest: str, exit_code: int, wait: float | None = None) -> None:
        self._lines.put({"finish": {"manifest": manifest, "exit_code": exit_code}})
        if self._ended.wait(FINISH if wait is None else wait):
            return
        self._ended.set()  # given up, which is no failure
        if self._process is not None:
            self._process.kill()
        if wait is None:
            _say(f"is not done after {FINISH:g} s; what it has not sent lies on disk, for `wandb sync`")

    def _work(self) -> None:
        command = [sys.executable, "-m", "poslab.tracking.send.process"]
        try:
            # Signals are for the run, which then says what is to be done.
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            ) as self._process:
                assert self._process.stdin
                assert self._process.stdout
                threading.Thread(target=self._tell, args=(self._process.stdin,), daemon=True).start()
                for line in self._process.stdout:
                    self._hear(json.loads(line))
            if not self._ended.is_set():
                self._fail(f"its process ended with status {self._process.returncode}")
        except Exception as error:
            self._fail(error_line(error))

    def _tell(self, process: IO[bytes]) -> None:
        with suppress(OSError, ValueError):  # it has ended, which the other thread sees
            while True:
                process.write(json.dumps(self._lines.get()).encode() + b"\n")
                process.flush()

    def _hear(self, answer: Mapping[str, Any]) -> None:
        if "place" in answer:
            self._place = answer["place"]
            self._opened.set()
        elif "stop" in answer:
            self._stop(answer["stop"])
        elif "failed" in answer:
            self._fail(answer["failed"])
        else:
            self._place = {**(self._place or {}), "complete": True}
            self._ended.set()

    def _fail(self, why: str) -> None:
        if self._ended.is_set():
            return
        self._place = {**(self._place or {}), "failed": why}
        self._opened.set()
        self._ended.set()
        _say(f"failed, the run goes on without it: {why}")


def error_line(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {PATH.sub('', ' '.join(str(error).split()))[:300]}"


def _say(what: str) -> None:
    print(f"W&B {what}", file=sys.stderr, flush=True)
