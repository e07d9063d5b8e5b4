"""Facts hidden in windows of text, and what a model is asked about them at the end: needles in a haystack.

    ... some text
    The key of B is 48213.
    more text ...
    The key of B is 48213

The last line is asked for by likelihood: the model scores it with each of several answers, and the text has
only one of them with that name. So a model that was never trained on such questions has a share of right
choices, above one in CANDIDATES or not. In `one` the other answers stand nowhere; in `several` each is the
key of another name, so that it takes the name to find the right one (Hsieh et al. 2024, arXiv 2404.06654).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

KINDS = ("one", "several")
CANDIDATES = 4
NAMES, DIGITS = b"ABCD", 5
LINE = len(b"\nThe key of A is ") + DIGITS  # bytes
ROOM = (CANDIDATES + 1) * (LINE + 1)  # that statements and question take


class Needles(NamedTuple):
    """Windows that end with the right answer, and all answers of each, the right one first."""

    windows: Int[np.ndarray, "N T"]
    answers: Int[np.ndarray, "N CANDIDATES DIGITS"]


def needles(texts: Int[np.ndarray, "N T"], kind: str, depth: float) -> Needles:
    """Put a fact into each text, and a question for it at its end; T >= ROOM bytes.

    At depth 0 the fact stands at the start of the window, at 1 right before the question. Names and keys are
    the same at every length and depth, and in every run. Four texts in a row have the same keys and each asks
    for another: of these, a model that only likes some keys more than others has one right.
    """
    windows, answers = texts.copy(), []
    size = texts.shape[1]
    for number, window in enumerate(windows):
        group, asked = divmod(number, CANDIDATES)
        random = np.random.Philox(key=np.array([group, 0], dtype=np.uint64), counter=[0, 0, 0, 5])
        raw = random.random_raw(1 + CANDIDATES).tolist()
        # Keys of one name each: they differ in their first digit, so all are different.
        keys = [
            b"%d%0*d" % ((raw[0] + 2 * place) % 10, DIGITS - 1, draw // 10 % 10 ** (DIGITS - 1))
            for place, draw in enumerate(raw[1:])
        ]
        lines = [b"\nThe key of %c is %s" % pair for pair in zip(NAMES, keys, strict=True)]
        stated = b"".join(line + b"." for line in (lines if kind == "several" else lines[asked : asked + 1]))
        start = round(depth * (size - len(stated) - LINE))
        window[start : start + len(stated)] = np.frombuffer(stated, dtype=np.uint8)
        window[size - LINE :] = np.frombuffer(lines[asked], dtype=np.uint8)
        wrong = [key for place, key in enumerate(keys) if place != asked]
        answers.append([list(key) for key in (keys[asked], *wrong)])
    return Needles(windows, np.array(answers))
