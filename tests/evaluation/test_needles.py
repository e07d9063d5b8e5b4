"""Facts hidden in the text for models not trained on questions: their places, and what counts as found."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from poslab.analysis.results import gather
from poslab.analysis.statistics import estimate
from poslab.data.needles import KINDS, ROOM, hidden, needles
from poslab.data.tokens import Bytes
from poslab.measures import needles as measure
from poslab.objectives import UNSCORED
from poslab.report.study_tables import StudyTables
from poslab.study.run.plan import plan
from support.runs import make, request

LINE = re.compile(rb"\nThe key of (\w) is (\d{5})")


def text(count, size):
    return np.full((count, size), ord("-"), dtype=np.int64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [ROOM, 300])
def test_the_text_has_one_right_answer_and_it_is_the_same_at_every_depth_and_length(kind, size):
    stated = 4 if kind == "several" else 1
    asked = needles(kind, 20, Bytes())
    expected = np.array([needle.answers for needle in asked])
    for depth, place in ((0.0, 0), (1.0, size - 22 - 23 * stated)):
        windows, scored = hidden(text(20, size), asked, depth)
        np.testing.assert_array_equal(scored[..., -5:], expected)
        assert (scored[..., :-5] == UNSCORED).all()
        assert (windows[..., -5:] == expected).all()
        of_right = windows[:, 0].astype(np.uint8)
        for window, candidates in zip(of_right, expected.astype(np.uint8), strict=True):
            *facts, (name, key) = LINE.findall(bytes(window))
            assert LINE.search(bytes(window)).start() == place
            assert len(facts) == stated
            assert dict(facts)[name] == key == bytes(candidates[0])
            assert bytes(window).endswith(key)
            assert len({bytes(each) for each in candidates}) == 4
            if kind == "several":
                assert {key for _, key in facts} == {bytes(each) for each in candidates}
    assert len({bytes(each.astype(np.uint8)) for each in expected[:, 0]}) == 20


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_prefers_some_digits_is_right_as_often_as_guessing(kind):
    liked = np.random.default_rng(0).normal(size=256)
    likely = np.array([liked[needle.answers].sum(axis=-1) for needle in needles(kind, 32, Bytes())])
    assert (likely[:, 0] > likely[:, 1:].max(axis=1)).sum() == 8


class Reader(nn.Module):
    """Predicts the byte that followed an earlier occurrence of the last `reach` bytes, else any byte."""

    def __init__(self, reach, masked=False):
        super().__init__()
        self.embedding, self.reach, self.masked = nn.Embedding(257, 1), reach, masked

    def forward(self, tokens, last, targets, reduction):
        assert not self.masked or (tokens[:, -5:] == 256).all()
        logits = torch.zeros(*tokens.shape, 257)
        for row, window in enumerate(tokens.tolist()):
            for end in range(len(window) - last, len(window)):
                seen = window[: end if self.masked else end + 1]
                back = seen[-self.reach :]
                if self.masked:  # the first masked token follows known text; the others can be anything
                    back = [] if seen[-1] == 256 else back
                for start in range(len(seen) - self.reach if back and self.reach else 0):
                    if window[start : start + self.reach] == back:
                        logits[row, end, window[start + self.reach]] = 5.0
        return cross_entropy(logits[:, -last:].mT, targets, reduction=reduction)


@pytest.mark.parametrize(
    ("reach", "masked", "right"),
    [
        (9, False, {"one": 8, "several": 8}),
        (0, False, {"one": 0, "several": 0}),
        (9, True, {"one": 8, "several": 8}),
    ],
)
def test_a_model_that_reads_finds_every_fact_and_one_that_does_not_finds_none(
    reach, masked, right, monkeypatch
):
    """Without a preference all answers are equally likely, and a tie counts as wrong."""
    monkeypatch.setattr(
        "poslab.objectives.build_objective", lambda section: SimpleNamespace(causal=not masked)
    )
    trained = SimpleNamespace(
        gpt=Reader(reach, masked),
        config=SimpleNamespace(objective={}),
        corpus=SimpleNamespace(vocabulary=256),
    )
    for kind in KINDS:
        first, *wrong = measure.answer_losses(trained, text(8, 150), needles(kind, 8, Bytes()), 0.5).T
        assert (first < np.min(wrong, axis=0)).sum() == right[kind]


def test_the_report_says_whether_a_run_is_above_guessing(tmp_path):
    settings = {"context_length": 128, "data__tokens": 200_000}
    settings |= {
        "trainer__max_steps": 2,
        "trainer__warmup_steps": 1,
        "evaluate__longest": 2,
        "model__layers": 1,
    }
    for seed in (0, 1):
        asked = request("made_up", evaluate__needles=3, seed=seed, **settings)
        assert make(asked, tmp_path).status == "done"
    assert plan(asked, tmp_path).directory != plan(request("made_up", seed=1, **settings), tmp_path).directory
    rows = (plan(asked, tmp_path).directory / "needles.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 * 2 * 5  # kinds, lengths with room, depths
    section = measure.Needles().section(StudyTables(gather("made_up", tmp_path, None)))
    assert len(section.findings) == 4
    assert all("not separated from guessing: rope" in finding for finding in section.findings)
    assert all("3 questions" in finding for finding in section.findings)
    assert {len(chart.panels) for chart in section.charts} == {1}


@pytest.mark.parametrize(
    ("shares", "asked", "above"),
    [
        ((1.0, 1.0, 1.0), 8, True),  # equal seeds, and above guessing by the number of questions
        ((0.5, 0.5, 0.5), 4, False),  # two of four are right by chance
        ((0.5, 0.5, 0.5), 64, True),
        ((0.3, 0.6, 0.9), 64, False),  # seeds differ
        ((1.0,), 64, False),
    ],
)
def test_above_guessing_means_more_than_seeds_and_questions_explain(shares, asked, above):
    assert measure.is_above_guessing(estimate(shares), asked) == above
