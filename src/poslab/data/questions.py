"""Questions in windows of text, with answers that are earlier in the window (`probe`).

    ... some text
    The pass key is 48213.
    more text ...
    The pass key is 48213

The first line states a random key; the last repeats it, and the model can know the key only from the first
(Mohtashami and Jaggi 2023, arXiv 2305.16300; their wording is too long for short windows). In `copy` the key
is eight letters in brackets, which ordinary text does not contain.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Task:
    """The statement is `before`, key, `after`; the question is `before` and the key. Tokens are bytes."""

    before: bytes
    after: bytes
    symbols: bytes  # the alphabet of keys
    length: int  # symbols in a key

    @property
    def statement_length(self) -> int:
        return len(self.before) + self.length + len(self.after)

    @property
    def question_length(self) -> int:
        """Number of bytes in the question with its answer."""
        return len(self.before) + self.length

    def key(self, raw: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """Return the key made from the first `length` of these random numbers."""
        letters = np.frombuffer(self.symbols, dtype=np.uint8)
        # Raw numbers and a remainder are the same in every release of NumPy.
        return letters[(raw[: self.length] % np.uint64(len(letters))).astype(np.intp)]

    def write(self, window: NDArray[np.int64], key: NDArray[np.uint8], start: int, end: int) -> None:
        """Write the statement into the window at `start`, and the question so that it stops before `end`."""
        before = np.frombuffer(self.before, dtype=np.uint8)
        question = np.concatenate([before, key])
        statement = np.concatenate([question, np.frombuffer(self.after, dtype=np.uint8)])
        window[start : start + len(statement)] = statement
        window[end - len(question) : end] = question


TASKS = {
    "passkey": Task(b"\nThe pass key is ", b".\n", b"0123456789", 5),
    "copy": Task(b"\n[", b"]\n", b"abcdefghijklmnopqrstuvwxyz", 8),
}
ROOM = max(task.statement_length + task.question_length for task in TASKS.values())  # tokens
DRAWN = 4 + max(task.length for task in TASKS.values())  # random numbers per window


def with_questions(
    windows: NDArray[np.int64], tasks: list[str], share: float, seed: int, step: int
) -> NDArray[np.int64]:
    """Return the batch (n, T + 1) with a question in a `share` of its windows, decided by (seed, step) only.

    Statement and question are at random places, the statement first. T + 1 >= ROOM.
    """
    # The random stream of `training_batch`, at another counter.
    random = np.random.Philox(key=np.array([seed, step], dtype=np.uint64), counter=[0, 0, 0, 1])
    raw = random.random_raw(len(windows) * DRAWN).reshape(len(windows), DRAWN)
    batch = windows.copy()
    for window, (chosen, kind, first, second, *key) in zip(batch, raw, strict=True):
        if int(chosen) >= share * 2**64:
            continue
        task = TASKS[tasks[int(kind) % len(tasks)]]
        least = task.statement_length + task.question_length
        end = least + int(first) % (len(window) - least + 1)
        start = int(second) % (end - least + 1)
        task.write(window, task.key(np.array(key, dtype=np.uint64)), start, end)
    return batch


def questions(texts: NDArray[np.int64], task: Task, depth: float) -> NDArray[np.int64]:
    """Return texts (n, l + 1) with a statement at `depth`, and a question with its answer at the end.

    Depth 0 is the start of the window, 1 is right before the question. The keys are the same at every
    length, at every depth and in every run.
    """
    windows = texts.copy()
    size = texts.shape[1]
    start = round(depth * (size - task.statement_length - task.question_length))
    for number, window in enumerate(windows):
        random = np.random.Philox(key=np.array([number, 0], dtype=np.uint64), counter=[0, 0, 0, 2])
        task.write(window, task.key(random.random_raw(task.length)), start, size)
    return windows
