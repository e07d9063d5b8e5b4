"""Questions among the text: where they are put, what counts as an answer, what a run records of them."""

import re

import numpy as np
import pytest
import torch

from poslab.config.schema import ConfigError
from poslab.data.questions import ROOM, TASKS, questions, with_questions
from poslab.measures.retrieval import answers
from poslab.study.run.plan import plan
from support.models import ATTENTIONS, SCHEMES, make_gpt
from support.runs import make, request

L = 128
PROBE = {"tasks": ["passkey", "copy"], "share": 0.5, "samples": 3, "depths": 3}
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


def test_questions_are_a_function_of_seed_and_step_and_come_in_the_share_asked_for():
    plain = text(2000)
    asked = with_questions(plain, ["passkey", "copy"], 0.25, seed=1, step=7)
    assert (asked == with_questions(plain, ["passkey", "copy"], 0.25, seed=1, step=7)).all()
    assert (asked != with_questions(plain, ["passkey", "copy"], 0.25, seed=1, step=8)).any()
    changed = (asked != plain).any(axis=1)
    assert 0.22 < changed.mean() < 0.28
    both = [b"pass key" in bytes(window.astype(np.uint8)) for window in asked[changed]]
    assert 0.4 < np.mean(both) < 0.6
    assert (plain == text(2000)).all()  # the text itself stays
    shortest = with_questions(text(50, ROOM), ["passkey", "copy"], 0.9, seed=0, step=0)
    assert shortest.shape == (50, ROOM)


@pytest.mark.parametrize("name", TASKS)
def test_depth_is_where_the_statement_stands_and_keys_do_not_depend_on_it(name):
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


def test_answers_are_what_the_model_would_say():
    gpt = make_gpt(SCHEMES["rope"], ATTENTIONS["softmax"], vocabulary=256, context_length=L)
    windows = questions(text(5), TASKS["copy"], 0.3)
    with torch.no_grad():
        logits = gpt(torch.from_numpy(windows[:, :-1]))[:, -8:]
    said = logits.argmax(dim=-1).numpy()
    windows[0, -8:] = said[0]  # a model that is right in one sample; its context is left as it is
    windows[1, -1] = said[1, -1]
    losses, likeliest = answers(gpt, windows, 8)
    with torch.no_grad():
        logits = gpt(torch.from_numpy(windows[:, :-1]))[:, -8:]
    assert (likeliest == (logits.argmax(dim=-1).numpy() == windows[:, -8:])).all()
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.from_numpy(windows[:, -8:]).flatten(), reduction="none"
    )
    np.testing.assert_allclose(losses.flatten(), expected.numpy(), rtol=1e-9)


def test_a_run_trains_on_questions_and_records_what_it_answers(tmp_path):
    settings = {"context_length": L, "data__tokens": 200_000, "trainer__max_steps": 6, "evaluate__longest": 2}
    asked = request("probed", probe=PROBE, **settings)
    without = request("plain", **settings)
    probed, plain = make(asked, tmp_path), make(without, tmp_path)
    assert probed.status == plain.status == "done"
    assert probed.batches != plain.batches
    rows = (plan(asked, tmp_path).directory / "probe.csv").read_text().splitlines()
    assert rows[0] == "task,multiple,length,depth,samples,exact,correct,nll,tokens"
    cells = [row.split(",") for row in rows[1:]]
    expected = [
        [task, multiple, length, depth, "3"]
        for task in PROBE["tasks"]
        for multiple, length in (("0.5", "64"), ("1", "128"), ("2", "256"))
        for depth in ("0", "0.5", "1")
    ]
    assert [row[:5] for row in cells] == expected
    assert {row[8] for row in cells} == {"15", "24"}
    assert all(float(row[7]) > 0 for row in cells)
    assert "probe.csv" in probed.files
    assert not (plan(without, tmp_path).directory / "probe.csv").exists()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"probe": PROBE, "data__vocabulary": 300, "context_length": L}, "vocabulary=bytes"),
        ({"probe": PROBE, "context_length": 64}, f"choose context_length={2 * ROOM} or more"),
    ],
)
def test_a_probe_that_cannot_work_is_refused(changes, told, tmp_path):
    with pytest.raises(ConfigError, match=told):
        plan(request(data__tokens=200_000, **changes), tmp_path)


@pytest.mark.parametrize(
    "probe", [{**PROBE, "share": None}, {"tasks": [], "samples": 3}, {**PROBE, "tasks": ["copy", "copy"]}]
)
def test_half_a_probe_is_an_error(probe):
    with pytest.raises(ConfigError):
        request(probe=probe)
