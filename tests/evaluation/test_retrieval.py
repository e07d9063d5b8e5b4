"""Questions in the text: their places, and what counts as an answer. A run with them: golden/."""

import re

import numpy as np
import pytest
import torch

from poslab.data.questions import ROOM, TASKS, questions, with_questions
from poslab.measures.retrieval import answers
from support.models import ATTENTIONS, SCHEMES, make_gpt

L = 128
PATTERNS = {
    "passkey": rb"\nThe pass key is (\d{5})\.\n.*?\nThe pass key is (\d{5})",
    "copy": rb"\n\[([a-z]{8})\]\n.*?\n\[([a-z]{8})",
}


def text(count, size=L + 1):
    return np.tile(np.frombuffer(b"-", dtype=np.uint8).astype(np.int64), (count, size))


@pytest.mark.parametrize("name", TASKS)
def test_a_question_is_answered_by_the_one_statement_before_it(name):
    windows = with_questions(text(200), [name], 0.999999, seed=3, step=5)
    ends = []
    for window in windows:
        found = re.findall(PATTERNS[name], bytes(window.astype(np.uint8)), re.DOTALL)
        assert len(found) == 1
        assert found[0][0] == found[0][1]
        end = re.search(PATTERNS[name], bytes(window.astype(np.uint8)), re.DOTALL).end()
        ends.append(end)
    assert len({bytes(window.astype(np.uint8)) for window in windows}) == 200
    assert max(ends) == L + 1  # the last target may be an answer
    assert min(ends) < L / 2  # and not only the last ones


def test_questions_depend_on_seed_and_step_and_have_the_requested_share():
    plain = text(2000)
    asked = with_questions(plain, ["passkey", "copy"], 0.25, seed=1, step=7)
    assert (asked == with_questions(plain, ["passkey", "copy"], 0.25, seed=1, step=7)).all()
    assert (asked != with_questions(plain, ["passkey", "copy"], 0.25, seed=1, step=8)).any()
    changed = (asked != plain).any(axis=1)
    assert 0.22 < changed.mean() < 0.28
    both = [b"pass key" in bytes(window.astype(np.uint8)) for window in asked[changed]]
    assert 0.4 < np.mean(both) < 0.6
    assert (plain == text(2000)).all()  # the text itself is unchanged
    shortest = with_questions(text(50, ROOM), ["passkey", "copy"], 0.9, seed=0, step=0)
    assert shortest.shape == (50, ROOM)


@pytest.mark.parametrize("name", TASKS)
def test_depth_is_the_place_of_the_statement_and_keys_do_not_depend_on_it(name):
    task = TASKS[name]
    found = {}
    for size in (ROOM, L + 1, 4 * L + 1):
        for depth in (0, 0.5, 1):
            window = bytes(questions(text(4, size), task, depth)[2].astype(np.uint8))
            start = window.index(task.before)
            room = size - task.statement_length - task.question_length
            assert start == round(depth * room)
            assert window.endswith(task.before + window[start + len(task.before) :][: task.length])
            found[size, depth] = window[-task.length :]
    assert len(set(found.values())) == 1


def test_answers_are_the_models_predictions():
    gpt = make_gpt(SCHEMES["rope"], ATTENTIONS["softmax"], vocabulary=256, context_length=L)
    windows = questions(text(5), TASKS["copy"], 0.3)
    with torch.no_grad():
        logits = gpt(torch.from_numpy(windows[:, :-1]))[:, -8:]
    said = logits.argmax(dim=-1).numpy()
    windows[0, -8:] = said[0]  # a model that is right in one sample; the context is unchanged
    windows[1, -1] = said[1, -1]
    losses, likeliest = answers(gpt, windows, 8)
    with torch.no_grad():
        logits = gpt(torch.from_numpy(windows[:, :-1]))[:, -8:]
    assert (likeliest == (logits.argmax(dim=-1).numpy() == windows[:, -8:])).all()
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.from_numpy(windows[:, -8:]).flatten(), reduction="none"
    )
    np.testing.assert_allclose(losses.flatten(), expected.numpy(), rtol=1e-9)
