"""Facts hidden in windows of text, for models with tokens that are not bytes."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Int

from poslab.config.schema import ConfigError, longest_length
from poslab.data.needles import CANDIDATES, DIGITS, KINDS, LINE, ROOM, needles
from poslab.data.segments import extrapolation_segments
from poslab.data.tokenizer_file import read_tokenizer
from poslab.data.tokens import Bytes
from poslab.evaluation.extrapolation import lengths_up_to
from poslab.evaluation.losses import token_losses
from poslab.measures import Row, Trained
from poslab.measures.needles import answered
from poslab.objectives import UNSCORED

if TYPE_CHECKING:
    from poslab.model.gpt import GPT


class Question(NamedTuple):
    """A question about a text, in tokens."""

    stated: Int[np.ndarray, "N"]  # the facts
    asked: Int[np.ndarray, "Q"]
    answers: Int[np.ndarray, "C T"]  # the right one first; UNSCORED behind those with fewer tokens


def needle_rows(trained: Trained, tokenizer: Path | None) -> Iterator[Row]:
    """Return the rows of needles.csv: the questions of measures.needles in the tokens of a tokenizer.

    The answers of a question may differ in tokens; each begins at the same place, and is scored by the sum
    of its tokens' losses. Lengths without room for facts and question are left out. Raise ConfigError where
    none has room.
    """
    config, gpt = trained.config, trained.gpt
    longest, count = longest_length(config), config.evaluate.needles
    segments, _ = extrapolation_segments(trained.corpus, count, longest, config.evaluate.documents)
    reached = lengths_up_to(longest, config.context_length, gpt.scheme.max_length)
    asked = {kind: _questions(kind, len(segments), tokenizer) for kind in KINDS}
    needed = room([question for questions in asked.values() for question in questions])
    lengths = [(multiple, length) for multiple, length in reached if length >= needed]
    if not lengths:
        raise ConfigError(
            f"evaluate.needles: facts, question and answer take {needed:,} tokens, and no window has them: "
            "leave it out, or give longer lengths="
        )
    return answered(
        trained,
        lengths,
        lambda kind, length, depth: _answer_losses(gpt, segments[:, -length:], asked[kind], depth),
    )


def room(questions: Sequence[Question]) -> int:
    """Return the tokens that any question has room in: each leaves the place of the widest answer."""
    width = max(answers.shape[1] for *_, answers in questions)
    return width + max(len(stated) + len(asked) for stated, asked, _ in questions)


def _questions(kind: str, count: int, tokenizer: Path | None) -> list[Question]:
    """Return the facts, the question and the answers of each text as tokens.

    The right answer is the first, and the places behind shorter answers are UNSCORED.
    """
    cut = Bytes() if tokenizer is None else read_tokenizer(tokenizer)

    def encoded(text: Iterable[int]) -> Int[np.ndarray, "T"]:
        return cut.encode([bytes(list(text))])[0].astype(np.int64)

    blank = np.full((count, ROOM), ord(" "))
    questions = []
    for window, answers in zip(*needles(blank, kind, 0.0), strict=True):
        stated = window[: (LINE + 1) * (CANDIDATES if kind == "several" else 1)]
        asked = window[-LINE : -DIGITS - 1]  # without its last space, which a tokenizer may join to a number
        spelled = [encoded([ord(" "), *answer]) for answer in answers]
        tails = np.full((CANDIDATES, max(map(len, spelled))), UNSCORED)
        for tail, tokens in zip(tails, spelled, strict=True):
            tail[: len(tokens)] = tokens
        questions.append(Question(encoded(stated), encoded(asked), tails))
    return questions


def _answer_losses(
    gpt: "GPT", texts: Int[np.ndarray, "N T"], questions: Sequence[Question], depth: float
) -> list[Any]:
    """Return the losses in nats of each answer to the question in each text, those of the right one first."""
    width = max(tails.shape[1] for *_, tails in questions)
    given = np.repeat(texts[:, None], CANDIDATES, axis=1)
    targets = np.full_like(given, UNSCORED)
    for rows, scored, (stated, asked, tails) in zip(given, targets, questions, strict=True):
        end = texts.shape[1] - width
        start = round(depth * (end - len(asked) - len(stated)))
        rows[:, start : start + len(stated)] = stated
        rows[:, end - len(asked) : end] = asked
        scored[:, end : end + tails.shape[1]] = tails
        rows[:, end:] = np.where(scored[:, end:] == UNSCORED, asked[-1], scored[:, end:])
    flat = given.reshape(-1, texts.shape[1]), targets.reshape(-1, texts.shape[1])
    losses = token_losses(gpt, flat[0][:, :-1], flat[1][:, 1:], width).sum(axis=1)
    return list(losses.reshape(-1, CANDIDATES).T)
