"""Evaluation with shared windows, and only scored tokens in the last block, equals the plain way."""

import numpy as np
import pytest
import torch

from poslab.evaluation.extrapolation import WHOLE, extrapolate
from poslab.evaluation.losses import token_losses
from poslab.model.attention.linear import CHUNK
from poslab.model.rescaling import METHODS, Rescaling
from support.evaluation import examples, plain_extrapolation, plain_losses
from support.models import ATTENTIONS, BY_TURNS, SCHEMES, make_gpt

CONTEXT, LONGEST, VOCABULARY = 16, 32, 50
TOKEN_BYTES = np.arange(1, VOCABULARY + 1)
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch):
    """Let linear attention use several chunks in windows as short as here."""
    monkeypatch.setitem(CHUNK, "cpu", 12)


def segments(count=2):
    return np.random.default_rng(0).integers(0, VOCABULARY, (count, 2 * LONGEST + 1))


def model(pos, attention, dtype=torch.float64):
    by_layer = pos["scheme"] == "schedule" or attention == "hybrid"  # the last of four differs
    layers = 4 if by_layer else 2
    return make_gpt(pos, ATTENTIONS[attention], layers=layers, context_length=CONTEXT, dtype=dtype)


def assert_plain(gpt, tolerance, sliding_windows=8):
    """Check that every row of extrapolation.csv and position.csv equals that of the plain way."""
    result = extrapolate(gpt, *examples(segments()), CONTEXT, sliding_windows, TOKEN_BYTES)
    reference, windows = plain_extrapolation(gpt, segments(), CONTEXT, sliding_windows, TOKEN_BYTES)
    mine = {(row["protocol"], row["multiple"], row["segment"]): row for row in result.lengths}
    assert mine.keys() == reference.keys()
    for key, row in reference.items():
        assert mine[key]["nll"] == pytest.approx(row["nll"], rel=tolerance), key
        assert (mine[key]["tokens"], mine[key]["bytes"]) == (row["tokens"], row["bytes"])
    assert [*mine] == sorted(mine, key=lambda key: float(key[1]))

    tiles, sliding = windows
    alone = [window for window in sliding if not (window == tiles).all(axis=1).any()]
    longest = np.array([*tiles, *alone[::WHOLE]])
    losses = plain_losses(gpt, longest)
    assert [row["position"] for row in result.positions] == list(range(longest.shape[1] - 1))
    for row, nll, counted in zip(result.positions, losses.T, TOKEN_BYTES[longest[:, 1:]].T, strict=True):
        assert row["nll"] == pytest.approx(nll.sum(), rel=tolerance)
        assert (row["tokens"], row["bytes"]) == (len(longest), counted.sum())


@pytest.mark.parametrize(
    ("pos", "attention", "dtype"),
    [
        *((*pair, torch.float64) for pair in BY_TURNS),
        *(("rope", attention, torch.float32) for attention in ATTENTIONS),
    ],
)
def test_every_scheme_and_attention_has_the_losses_of_the_plain_way(pos, attention, dtype):
    assert_plain(model(SCHEMES[pos], attention, dtype), TOLERANCE[dtype])


@pytest.mark.parametrize(
    ("pos", "method"),
    [
        *(("rope", method) for method in METHODS),
        *((pos, "dynamic") for pos in ("rope_dynamic", "pope", "as_command_a", "rope_learned")),
    ],
)
def test_a_rescaled_rotation_has_the_losses_of_the_plain_way(pos, method):
    """Which windows stand for others depends on the method, and in a schedule on its schemes."""
    gpt = model(SCHEMES[pos], "softmax")
    gpt.scheme.rescale(Rescaling(method, 8.0))
    assert_plain(gpt, 1e-9)


@pytest.mark.parametrize("sliding_windows", [1, 7, 5000])
def test_any_sample_of_sliding_windows_has_the_losses_of_the_plain_way(sliding_windows):
    """With 5000 every target is scored: windows that end with a tile are not run."""
    assert_plain(model(SCHEMES["rope"], "softmax"), 1e-9, sliding_windows)


@pytest.mark.parametrize("pos", SCHEMES)
def test_length_dependent_is_true_of_the_schemes_that_set_it(pos):
    """If it says no, more tokens change no earlier logits; if it says yes, they change some."""
    layers = 4 if "schedule" in str(SCHEMES[pos]) else 1
    gpt = make_gpt(SCHEMES[pos], ATTENTIONS["softmax"], layers=layers, context_length=CONTEXT)
    tokens = torch.from_numpy(segments()[:, : gpt.scheme.max_length or LONGEST])
    rescalings = [Rescaling(method, 8.0) for method in METHODS if gpt.scheme.rescale(Rescaling(method, 8.0))]
    for rescaling in (None, *rescalings):
        gpt.scheme.rescale(rescaling)
        with torch.no_grad():
            whole = gpt(tokens)
            same = [
                torch.allclose(gpt(tokens[:, :length]), whole[:, :length], rtol=1e-9, atol=1e-9)
                for length in (CONTEXT // 2, CONTEXT, CONTEXT + 1)
                if length < tokens.shape[1]
            ]
        if not gpt.scheme.length_dependent:
            assert all(same), rescaling
        elif rescaling is None:
            assert not all(same)


@pytest.mark.parametrize(
    ("pos", "tiles"), [("rope", 2 * LONGEST + 2 * LONGEST), ("rope_randomised", 2 * LONGEST * 3)]
)
def test_a_tile_that_begins_a_longer_one_is_not_run(pos, tiles):
    """Only the second of each two, except for the longest: 1 + 2 / 2 times the targets are run, not 3."""
    gpt, seen, shares = model(SCHEMES[pos], "softmax"), [], []
    for block in gpt.blocks:
        block.norm_attention.register_forward_pre_hook(
            lambda _, arguments: seen.append(arguments[0].shape[:2].numel())
        )
    extrapolate(gpt, *examples(segments()), CONTEXT, 1, TOKEN_BYTES, shares.append)
    alone = 8 + 16 + 32  # the only sliding window of each length, which ends at the second target
    assert sum(seen) == len(gpt.blocks) * (tiles + alone)
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_the_last_block_projects_only_scored_tokens():
    gpt, seen = model(SCHEMES["rope"], "flash"), []
    for block in gpt.blocks:
        block.perceptron.expand.register_forward_pre_hook(
            lambda _, arguments: seen.append(arguments[0].shape[1])
        )
    token_losses(gpt, *examples(segments()[:, :33]), last=3)
    assert seen == [32, 3]  # of two blocks
