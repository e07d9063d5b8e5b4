"""Processes that turn text into tokens, one for each core, and that train a BPE.

Each is a Python that imports neither PyTorch nor the program's own script, and is asked through its pipes. It
ends with the process that started it, however that ends.
"""

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from queue import SimpleQueue
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from poslab.config.schema import ConfigError
from poslab.data.tokens import Encoder, train_bpe

START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from poslab.data.workers import serve; serve()"
)
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class KilledError(ConfigError):
    """A process has ended that should not have."""


Shard = TypeVar("Shard")
Encoded = tuple[NDArray[Any], NDArray[np.int64]]  # of Encoder.encode


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Worker:
    """One process; `parallel`: on all cores."""

    def __init__(self, parallel: bool = False) -> None:
        variables = {**os.environ, **dict.fromkeys(ONE_THREAD, "1")}
        variables["TOKENIZERS_PARALLELISM"] = "true" if parallel else "false"
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=variables,
        )

    def ask(self, messages: Iterable[Any]) -> Any:
        """Send messages and return the answer to them.

        Raises what answering them has raised, and KilledError where the process has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        remaining = iter(messages)
        try:
            # What the messages themselves raise is no failure of the process.
            while (message := next(remaining, self)) is not self:
                with _ended_as(self._process):
                    pickle.dump(message, self._process.stdin, pickle.HIGHEST_PROTOCOL)
            with _ended_as(self._process):
                self._process.stdin.flush()
                answer = pickle.load(self._process.stdout)
        except BaseException:
            self.end()
            raise
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # what was not sent yet
                if pipe is not None:
                    pipe.close()


@contextlib.contextmanager
def _ended_as(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, pickle.UnpicklingError, ValueError):
        raise KilledError(
            f"a process that prepares the text was killed or has failed (status {process.wait()}); the same "
            "command resumes, with less memory where it may use fewer cores (taskset)"
        ) from None


def train_apart(sample: Iterable[str], entries: int) -> str:
    """Return what train_bpe does, from a process of its own, which gives its memory back."""
    worker = Worker(parallel=True)
    try:
        return str(worker.ask(chain(["train", entries], sample, [None])))
    finally:
        worker.end()


def encoded(
    shards: Iterable[tuple[Shard, Sequence[bytes]]], encoder: Encoder, count: int
) -> Iterator[tuple[Shard, Encoded]]:
    """Yield each shard with the tokens of its pieces of text, in their order, from `count` processes."""
    workers = [Worker() for _ in range(count)]
    free: SimpleQueue[Worker] = SimpleQueue()
    waiting: deque[tuple[Shard, Future[Encoded]]] = deque()

    def encode(pieces: Sequence[bytes]) -> Encoded:
        worker = free.get()
        try:
            found: Encoded = worker.ask(["encode", pieces])
            return found
        finally:
            free.put(worker)

    pool = ThreadPoolExecutor(count)
    try:
        for worker in workers:
            worker.ask(["encoder", (encoder.content, encoder.spellings, encoder.dtype, encoder.checked)])
            free.put(worker)
        for shard, pieces in shards:
            waiting.append((shard, pool.submit(encode, pieces)))
            if len(waiting) > count + count // 2 + 1:
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()
    finally:
        for worker in workers:
            worker.end()
        pool.shutdown(cancel_futures=True)


def serve() -> None:
    """Answer what the process that started this one asks, until it closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first ends the others
    requests = sys.stdin.buffer
    with os.fdopen(os.dup(1), "wb") as answers, contextlib.suppress(EOFError, BrokenPipeError):
        os.dup2(2, 1)  # what a library prints is no answer
        encoder: Encoder | None = None
        while True:
            kind, value = pickle.load(requests), pickle.load(requests)
            answer: Any = None
            try:
                if kind == "encoder":
                    encoder = Encoder(*value)
                elif kind == "encode":
                    assert encoder is not None
                    answer = encoder.encode(value)
                else:
                    answer = train_bpe(_texts(requests), value)
            except Exception as error:
                answer = error
            pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()


def _texts(requests: BinaryIO) -> Iterator[str]:
    while (text := pickle.load(requests)) is not None:
        yield text
