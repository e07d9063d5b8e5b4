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

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from poslab.data.tokens import Bytes, Tokenizer
from poslab.objectives import UNSCORED

KINDS = ("one", "several")
CANDIDATES = 4
NAMES, DIGITS = b"ABCD", 5
LINE = len(b"\nThe key of A is ") + DIGITS  # bytes
ROOM = (CANDIDATES + 1) * (LINE + 1)  # bytes that statements and question take


class Needle(NamedTuple):
    """Facts and a question about one of them, in tokens."""

    stated: Int[np.ndarray, "N"]
    asked: Int[np.ndarray, "Q"]
    answers: Int[np.ndarray, "C A"]  # the right one first; UNSCORED behind those with fewer tokens


def needles(kind: str, count: int, tokenizer: Tokenizer) -> list[Needle]:
    """Return so many of a kind, the same in every run.

    Four in a row have the same keys and each asks for another: of these, a model that only likes some keys
    more than others has one right.
    """
    # A tokenizer may join the space before a number to it.
    begin = LINE - DIGITS - (0 if isinstance(tokenizer, Bytes) else 1)
    found = []
    for number in range(count):
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
        wrong = [key for place, key in enumerate(keys) if place != asked]
        ends = [(lines[asked][:-DIGITS] + key)[begin:] for key in (keys[asked], *wrong)]
        facts, question, *spelled = (
            tokenizer.encode([text])[0].astype(np.int64) for text in (stated, lines[asked][:begin], *ends)
        )
        answers = np.full((CANDIDATES, max(map(len, spelled))), UNSCORED)
        for answer, tokens in zip(answers, spelled, strict=True):
            answer[: len(tokens)] = tokens
        found.append(Needle(facts, question, answers))
    return found


def widest(needles: Sequence[Needle]) -> int:
    """Return the tokens of the longest answer, for which each window leaves room."""
    return max(answers.shape[1] for *_, answers in needles)


def room(needles: Sequence[Needle]) -> int:
    """Return the fewest tokens of a window that has room for any of them, and one of text."""
    return 1 + widest(needles) + max(len(stated) + len(asked) for stated, asked, _ in needles)


def hidden(
    texts: Int[np.ndarray, "N T"], needles: Sequence[Needle], depth: float
) -> tuple[Int[np.ndarray, "N C T"], Int[np.ndarray, "N C T"]]:
    """Return each text with its facts, its question and each answer; and the answers, all else UNSCORED.

    At depth 0 the facts stand at the start of the window, at 1 right before the question.
    """
    given = np.repeat(texts[:, None], CANDIDATES, axis=1)
    scored = np.full_like(given, UNSCORED)
    end = texts.shape[1] - widest(needles)
    for windows, targets, (stated, asked, answers) in zip(given, scored, needles, strict=True):
        start = round(depth * (end - len(asked) - len(stated)))
        windows[:, start : start + len(stated)] = stated
        windows[:, end - len(asked) : end] = asked
        targets[:, end : end + answers.shape[1]] = answers
        windows[:, end:] = np.where(targets[:, end:] == UNSCORED, asked[-1], targets[:, end:])
    return given, scored
