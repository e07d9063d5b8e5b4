"""Extrapolation: the protocols against their definitions, one target at a time."""

import numpy as np
import pytest
import torch

from poslab.evaluation.extrapolation import WHOLE, extrapolate, spread
from poslab.evaluation.losses import token_losses
from support.evaluation import examples
from support.models import ATTENTIONS, SCHEMES, make_gpt

CONTEXT, LONGEST, STRIDE = 16, 64, 2


def segments(count=3, vocabulary=50):
    generator = np.random.default_rng(0)
    return generator.integers(0, vocabulary, (count, 2 * LONGEST + 1))


def run(gpt, sliding_windows=40, **options):
    return extrapolate(gpt, *examples(segments()), CONTEXT, sliding_windows, np.arange(1, 51), **options)


def sums(result, protocol, multiple):
    return {
        row["segment"]: (row["nll"], row["tokens"], row["bytes"])
        for row in result.lengths
        if row["protocol"] == protocol and row["multiple"] == multiple
    }


def one_loss(gpt, segment, place, start):
    """Of the target after `place`, given the tokens from `start` on."""
    with torch.no_grad():
        logits = gpt(torch.from_numpy(segment[None, start : place + 1]))[0, -1]
    return -logits.log_softmax(-1)[segment[place + 1]].item()


@pytest.fixture(scope="module")
def extrapolated():
    """A model of one layer and what is measured of it."""
    gpt = make_gpt(SCHEMES["rope"], ATTENTIONS["softmax"], layers=1, context_length=CONTEXT)
    return gpt, run(gpt)


@pytest.mark.parametrize(("multiple", "length"), [("0.5", 8), ("1", 16), ("4", 64)])
def test_protocols_follow_their_definitions(multiple, length, extrapolated):
    gpt, result = extrapolated
    number, block = spread(3, LONGEST // STRIDE, 40)
    for index, segment in enumerate(segments()):
        places = np.arange(LONGEST, 2 * LONGEST)
        tiled = [one_loss(gpt, segment, place, place - (place - LONGEST) % length) for place in places]
        nll, tokens, counted = sums(result, "non_overlapping", multiple)[index]
        assert nll == pytest.approx(sum(tiled), rel=1e-6)
        assert (tokens, counted) == (LONGEST, (segment[LONGEST + 1 :] + 1).sum())

        slid = [(b * STRIDE + i, (b + 1) * STRIDE) for b in block[number == index] for i in range(STRIDE)]
        windows = [one_loss(gpt, segment, LONGEST + at, LONGEST + end - length) for at, end in slid]
        nll, tokens, counted = sums(result, "sliding", multiple)[index]
        assert nll == pytest.approx(sum(windows), rel=1e-6)
        assert tokens == len(slid)
        matched = sums(result, "matched", multiple)[index]
        assert matched == (pytest.approx(sum(tiled[at] for at, _ in slid), rel=1e-6), tokens, counted)


def test_without_context_every_protocol_and_length_is_the_same():
    """A model that sees one token gains nothing from any window: the same targets must cost the same."""
    gpt = make_gpt(SCHEMES["rope"], ATTENTIONS["softmax"], context_length=CONTEXT)
    with torch.no_grad():
        for block in gpt.blocks:
            block.attention.project_attention.weight.zero_()
    result = run(gpt)
    for multiple in ("0.5", "1", "2", "4"):
        assert sums(result, "non_overlapping", multiple) == {
            key: pytest.approx(value) for key, value in sums(result, "non_overlapping", "1").items()
        }
        assert sums(result, "sliding", multiple) == {
            key: pytest.approx(value) for key, value in sums(result, "matched", "1").items()
        }


def test_loss_by_position_is_that_of_every_tile_and_every_fourth_sliding_window():
    gpt = make_gpt(SCHEMES["alibi"], ATTENTIONS["softmax"], context_length=CONTEXT)
    result = run(gpt, sliding_windows=7)
    assert [row["position"] for row in result.positions] == list(range(LONGEST))
    number, block = spread(3, LONGEST // STRIDE, 7)
    sliding = [(n, (b + 1) * STRIDE) for n, b in zip(number, block, strict=True)]  # segment, first token
    windows = [(n, LONGEST) for n in range(3)] + [each for each in sliding if each[1] < LONGEST][::WHOLE]
    for position in (0, 1, 40, LONGEST - 1):
        row = result.positions[position]
        each = [one_loss(gpt, segments()[n], first + position, first) for n, first in windows]
        assert row["nll"] == pytest.approx(sum(each), rel=1e-6)
        counted = sum(segments()[n][first + position + 1] + 1 for n, first in windows)
        assert (row["tokens"], row["bytes"]) == (len(windows), counted)


def test_a_scheme_is_not_scored_where_it_has_no_value():
    result = run(make_gpt(SCHEMES["learned"], ATTENTIONS["softmax"], context_length=CONTEXT))
    assert {row["multiple"] for row in result.lengths} == {"0.5", "1"}
    assert len(result.positions) == CONTEXT


@pytest.mark.parametrize(
    ("limit", "value", "sizes"),
    [
        ("evaluation.losses.TOKENS_A_BATCH", {"cpu": 1}, [64, 64, 64]),
        ("evaluation.losses.TOKENS_A_BATCH", {"cpu": 130}, [128, 64]),
        ("model.kernels.cross_entropy.LOGITS", 1000, [192]),
    ],
)
def test_batches_have_no_effect(monkeypatch, limit, value, sizes):
    gpt = make_gpt(SCHEMES["t5"], ATTENTIONS["softmax"])
    windows = segments()[:, :65]
    whole = token_losses(gpt, *examples(windows))
    monkeypatch.setattr(f"poslab.{limit}", value)
    batches = []
    np.testing.assert_allclose(
        token_losses(gpt, *examples(windows), on_batch=batches.append), whole, rtol=1e-6
    )
    assert batches == sizes


@pytest.mark.parametrize("count", [1, 7, 64, 256, 3000, 5000])
def test_sliding_targets_are_distinct_and_spread(count):
    segment, block = spread(64, 64, count)
    pairs = set(zip(segment.tolist(), block.tolist(), strict=True))
    assert len(pairs) == len(segment) >= 0.7 * min(count, 4096)
    if count >= 256:
        assert len(set(segment.tolist())) == 64  # every segment
        assert abs(block.mean() - 31.5) < 2  # and every place in them alike


def test_progress_ends_at_one():
    shares = []
    run(make_gpt(SCHEMES["rope"], ATTENTIONS["flash"], context_length=CONTEXT), progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
