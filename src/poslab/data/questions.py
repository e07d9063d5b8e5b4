"""Questions put into windows of text, whose answers a model must fetch from further back (`probe`).

    ... some text
    The pass key is 48213.
    more text ...
    The pass key is 48213

The first line states a key that nothing else predicts; the second asks for it, and only the first tells the
answer (Mohtashami and Jaggi 2023, arXiv 2305.16300, whose wording is longer than a short window allows).
`copy` asks for eight letters in brackets, which stand nowhere else in ordinary text.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Task:
    """A key between `before` and `after`; asked for by `before` again. Tokens are bytes."""

    before: bytes
    after: bytes
    symbols: bytes  # that a key is drawn from
    length: int  # of a key

    @property
    def statement_length(self) -> int:
        return len(self.before) + self.length + len(self.after)

    @property
    def question_length(self) -> int:
        """With the answer."""
        return len(self.before) + self.length

    def key(self, raw: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """The key that so many raw random numbers stand for."""
        letters = np.frombuffer(self.symbols, dtype=np.uint8)
        # Raw numbers and remainder: the same keys with every release of NumPy.
        return letters[(raw[: self.length] % np.uint64(len(letters))).astype(np.intp)]

    def ask(self, window: NDArray[np.int64], key: NDArray[np.uint8], start: int, end: int) -> None:
        """Write the statement at `start` and the question so that its answer ends before `end`, in place."""
        before = np.frombuffer(self.before, dtype=np.uint8)
        question = np.concatenate([before, key])
        statement = np.concatenate([question, np.frombuffer(self.after, dtype=np.uint8)])
        window[start : start + len(statement)] = statement
        window[end - len(question) : end] = question


TASKS = {
    "passkey": Task(b"\nThe pass key is ", b".\n", b"0123456789", 5),
    "copy": Task(b"\n[", b"]\n", b"abcdefghijklmnopqrstuvwxyz", 8),
}
ROOM = max(task.statement_length + task.question_length for task in TASKS.values())
DRAWN = 4 + max(task.length for task in TASKS.values())  # random numbers for a window


def with_questions(
    windows: NDArray[np.int64], tasks: list[str], share: float, seed: int, step: int
) -> NDArray[np.int64]:
    """A batch (n, T + 1) with a question in a `share` of its windows, as (seed, step) alone decide.

    Statement and question stand anywhere, the first before the second. Windows hold at least ROOM tokens.
    """
    # The stream of `training_batch`, from another place on.
    random = np.random.Philox(key=np.array([seed, step], dtype=np.uint64), counter=[0, 0, 0, 1])
    raw = random.random_raw(len(windows) * DRAWN).reshape(len(windows), DRAWN)
    asked = windows.copy()
    for window, (chosen, kind, first, second, *key) in zip(asked, raw, strict=True):
        if int(chosen) >= share * 2**64:
            continue
        task = TASKS[tasks[int(kind) % len(tasks)]]
        least = task.statement_length + task.question_length
        end = least + int(first) % (len(window) - least + 1)
        start = int(second) % (end - least + 1)
        task.ask(window, task.key(np.array(key, dtype=np.uint64)), start, end)
    return asked


def questions(texts: NDArray[np.int64], task: Task, depth: float) -> NDArray[np.int64]:
    """Texts (n, l + 1) whose last tokens are the answer to what stands at `depth` of the room before it.

    Depth 0 is the start of the window, 1 right before the question. The keys are the same at every length
    and depth, and for every run.
    """
    asked = texts.copy()
    size = texts.shape[1]
    start = round(depth * (size - task.statement_length - task.question_length))
    for number, window in enumerate(asked):
        random = np.random.Philox(key=np.array([number, 0], dtype=np.uint64), counter=[0, 0, 0, 2])
        task.ask(window, task.key(random.random_raw(task.length)), start, size)
    return asked
