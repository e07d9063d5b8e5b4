"""The tracker of a run, which hands everything to a process of its own: training never waits for W&B."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import IO, Any

from poslab.config.text import one_line, without_secrets

FINISH_SECONDS = 180.0  # to send what is left at the end; the rest stays on disk, for `wandb sync`

PATH = re.compile(r"(?<![\w:/])/(?:[^\s/'\"]+/)+")  # records are published: no path of the machine


class Background:
    """Sends rows and the end of a run to `poslab.tracking.send.process`, in order, until that fails.

    A thread would not do: importing W&B and opening a run take seconds of Python, a row some milliseconds,
    and training needs the interpreter for every operation.
    """

    def __init__(self, opening: Mapping[str, Any], stop: Callable[[str], None]) -> None:
        """`opening` is the process's first line; `stop` is called with the name of whoever stops the run."""
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
        if self._ended.wait(FINISH_SECONDS if wait is None else wait):
            return
        self._ended.set()  # given up, which does not count as a failure
        if self._process is not None:
            self._process.kill()
        if wait is None:
            _print(f"did not finish in {FINISH_SECONDS:g} s; what is not sent is on disk, for `wandb sync`")

    def _work(self) -> None:
        command = [sys.executable, "-m", "poslab.tracking.send.process"]
        try:
            # In a session of its own: signals are for the run, which passes on what is to be done.
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            ) as self._process:
                assert self._process.stdin
                assert self._process.stdout
                threading.Thread(target=self._write, args=(self._process.stdin,), daemon=True).start()
                for line in self._process.stdout:
                    self._read(json.loads(line))
            if not self._ended.is_set():
                self._fail(f"its process ended with status {self._process.returncode}")
        except Exception as error:
            self._fail(error_line(error))

    def _write(self, process: IO[bytes]) -> None:
        with suppress(OSError, ValueError):  # the process has ended, which the other thread finds out
            while True:
                process.write(json.dumps(self._lines.get()).encode() + b"\n")
                process.flush()

    def _read(self, answer: Mapping[str, Any]) -> None:
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

    def _fail(self, reason: str) -> None:
        if self._ended.is_set():
            return
        self._place = {**(self._place or {}), "failed": reason}
        self._opened.set()
        self._ended.set()
        _print(f"failed, and the run goes on without it: {reason}")


def error_line(error: Exception) -> str:
    """An error in one line, without directories."""
    return f"{type(error).__name__}: {PATH.sub('', without_secrets(one_line(error)))[:300]}"


def _print(text: str) -> None:
    print(f"W&B {text}", file=sys.stderr, flush=True)
