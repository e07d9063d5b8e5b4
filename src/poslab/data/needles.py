"""Facts hidden in windows of text, with a question about one of them at the end: needles in a haystack.

    ... some text
    The key of B is 48213.
    more text ...
    The key of B is 48213

The last line is scored by likelihood, once with each of CANDIDATES answers; the text states only one of them
for that name. So a model that was never trained on such questions also has a share of right choices;
chance gives one in CANDIDATES. In `one` the text has none of the other answers; in `several` each is the key
of another name, so the model needs the name to find the right one (Hsieh et al. 2024, arXiv 2404.06654).
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
ROOM = (CANDIDATES + 1) * (LINE + 1)  # bytes for the statements and the question


class Needle(NamedTuple):
    """Facts and a question about one of them, as tokens."""

    stated: Int[np.ndarray, "N"]
    asked: Int[np.ndarray, "Q"]
    answers: Int[np.ndarray, "C A"]  # the right one first; shorter ones are padded with UNSCORED


def needles(kind: str, count: int, tokenizer: Tokenizer) -> list[Needle]:
    """Return `count` needles of a kind, the same in every run.

    Four needles in a row share their keys and each asks for a different one. A model that only prefers some
    keys to others answers one of the four correctly.
    """
    # A tokenizer may put the space before a number into the number's first token.
    begin = LINE - DIGITS - (0 if isinstance(tokenizer, Bytes) else 1)
    result = []
    for number in range(count):
        group, asked = divmod(number, CANDIDATES)
        random = np.random.Philox(key=np.array([group, 0], dtype=np.uint64), counter=[0, 0, 0, 5])
        raw = random.random_raw(1 + CANDIDATES).tolist()
        # One key for each name. The first digits differ, so all keys are different.
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
        result.append(Needle(facts, question, answers))
    return result


def widest(needles: Sequence[Needle]) -> int:
    """Return the number of tokens in the longest answer: each window leaves room for it."""
    return max(answers.shape[1] for *_, answers in needles)


def room(needles: Sequence[Needle]) -> int:
    """Return the fewest tokens of a window with room for any of the needles and one token of text."""
    return 1 + widest(needles) + max(len(stated) + len(asked) for stated, asked, _ in needles)


def hidden(
    texts: Int[np.ndarray, "N T"], needles: Sequence[Needle], depth: float
) -> tuple[Int[np.ndarray, "N C T"], Int[np.ndarray, "N C T"]]:
    """Return each text with its facts, question and each answer; and the answers, UNSCORED elsewhere.

    At depth 0 the facts are at the start of the window, at 1 right before the question.
    """
    inputs = np.repeat(texts[:, None], CANDIDATES, axis=1)
    scored = np.full_like(inputs, UNSCORED)
    end = texts.shape[1] - widest(needles)
    for windows, targets, (stated, asked, answers) in zip(inputs, scored, needles, strict=True):
        start = round(depth * (end - len(asked) - len(stated)))
        windows[:, start : start + len(stated)] = stated
        windows[:, end - len(asked) : end] = asked
        targets[:, end : end + answers.shape[1]] = answers
        windows[:, end:] = np.where(targets[:, end:] == UNSCORED, asked[-1], targets[:, end:])
    return inputs, scored
