"""The recorded effects of a scheme in a trained model are its effects on the logits."""

import cmath
import math

import numpy as np
import pytest
import torch

from poslab.config.schema import Options
from poslab.evaluation.inspection import _bias, inspect, spaced, upper_bound
from poslab.model.attention import Mixer
from poslab.model.positions import Geometry, Scheme, build_scheme
from support.models import ATTENTIONS, BY_TURNS, POSITIONS, SCHEMES, make_gpt

L = 32
DISTANCE = torch.arange(L)  # at the training length; past it dynamic scaling changes the frequencies


def windows(count=3, length=L):
    return np.random.default_rng(0).integers(0, 50, (count, length + 1))


def looked_at(pos, attention="softmax", longest=4 * L, **changes):
    section = POSITIONS[pos] if isinstance(pos, str) else pos
    gpt = make_gpt(section, ATTENTIONS[attention], context_length=L, **changes)
    return gpt, inspect(gpt, windows(), longest)


@pytest.mark.parametrize("pos", SCHEMES)
def test_relative_rotations_are_those_of_queries_and_keys(pos):
    """For vectors of ones, products over that at distance 0 are means of the real parts of all rotations."""
    scheme = build_scheme(SCHEMES[pos], Geometry(64, 4, L, layers=4)).double()
    turns = scheme.relative_rotation(DISTANCE)
    if turns is None:
        return
    ones = torch.ones(1, 4, len(DISTANCE), 16, dtype=torch.float64)
    queries, keys = scheme.rotate_queries(ones, DISTANCE), scheme.rotate_keys(ones, DISTANCE)
    products = (queries @ keys[:, :, :1].mT)[0, 0, :, 0]
    told = turns.real.sum(dim=0)
    torch.testing.assert_close(products / products[0], told / told[0])


def test_a_scheme_that_rotates_by_the_distance_only_has_a_relative_rotation():
    for pos in SCHEMES:
        scheme = build_scheme(SCHEMES[pos], Geometry(64, 4, L, layers=4))
        layer = scheme.layer(0)
        rotates = (
            type(layer).rotate_queries is not Scheme.rotate_queries or type(layer).rotate is not Scheme.rotate
        )
        if rotates and layer.shift_invariant:
            assert layer.relative_rotation(DISTANCE) is not None, pos


def test_the_upper_bound_holds_and_is_ropes_formula():
    theta = 10_000.0 ** (-torch.arange(0, 16, 2, dtype=torch.float64) / 16)
    turns = torch.polar(torch.ones(8, L, dtype=torch.float64), theta[:, None] * DISTANCE)
    by_hand = [
        sum(abs(sum(cmath.exp(1j * t * th) for th in theta.tolist()[: j + 1])) for j in range(8))
        for t in (0, 3, 17)
    ]
    bound = upper_bound(turns)
    assert bound[0] == 1
    assert [bound[3], bound[17]] == pytest.approx([value / by_hand[0] for value in by_hand[1:]])
    assert max(bound[1:]) < 1


def test_distances_are_spaced_and_end_below_the_limit():
    assert spaced(4) == [0, 1, 2, 3]
    assert spaced(1) == [0]
    found = spaced(1024)
    assert found[-1] == 1023
    assert len(found) < 45
    assert found == sorted(set(found))


def test_recorded_biases_are_those_of_the_scheme():
    gpt, (bias, rotation, bound, *_) = looked_at("alibi")
    slopes = gpt.scheme.bias(torch.tensor([1]))[:, 0]
    assert rotation == bound == []
    assert {row["layer"] for row in bias} == {0}
    for row in bias:
        assert row["bias"] == pytest.approx(float(slopes[row["head"]]) * row["distance"])
    _, (bias, *_) = looked_at("fire")
    assert {row["distance"] for row in bias} == set(spaced(4 * L))
    assert looked_at("none")[1][:3] == ([], [], [])
    assert looked_at("rope_randomised")[1][:3] == ([], [], [])  # no two tokens are that far apart
    assert {row["distance"] for row in looked_at("learned")[1][3]} != set()


def test_wavelengths_are_two_pi_over_the_frequency():
    _, (bias, rotation, bound, *_) = looked_at("rope")
    assert bias == []
    assert [row["wavelength"] for row in rotation] == pytest.approx(
        [2 * math.pi * 10_000 ** (2 * pair / 8) for pair in range(4)]
    )
    assert [row["distance"] for row in bound] == spaced(4 * L)
    assert None in [row["wavelength"] for row in looked_at("rope_p")[1][1]]


@pytest.mark.parametrize("pos", ["fox", "inkling"])
def test_biases_by_content_are_recorded_as_their_mean(pos):
    gpt, (bias, rotation, *_) = looked_at(pos)
    assert rotation == []
    assert {row["layer"] for row in bias} == {0, 1, 2, 3}
    at = {(row["layer"], row["head"], row["distance"]): row["bias"] for row in bias}
    x = gpt.blocks[0].norm_attention(gpt.embedding(torch.from_numpy(windows()[:, :-1])))
    if pos == "fox":
        distance, added = 1, gpt.scheme.layer(0).log_gates(x).detach()
        assert at[0, 0, 8] < at[0, 0, 1] < at[0, 0, 0] == 0
    else:
        r, table = gpt.scheme.layer(0).content_bias(x, torch.arange(x.shape[1]))
        distance, added = 3, r @ table[:, 3]
    mean = added[..., L // 2 :].mean(dim=(0, 2))
    assert [at[0, head, distance] for head in range(4)] == pytest.approx(mean.tolist())


def test_a_bias_by_content_is_recorded_up_to_its_end():
    _, (bias, *_) = looked_at({**SCHEMES["inkling"], "extent": 0.25})
    assert {row["bias"] == 0 for row in bias if row["distance"] >= L // 4} == {True}
    assert all(row["bias"] != 0 for row in bias if row["distance"] < L // 4)


def test_attention_distance_is_the_mean_over_attended_keys():
    """With queries of 0 every score is 0, so query i attends equally to all before it: i / 2 back."""
    gpt = make_gpt(SCHEMES["none"], ATTENTIONS["softmax"], context_length=L)
    with torch.no_grad():
        for block in gpt.blocks:
            block.attention.query_key_value.weight[: 2 * gpt.geometry.width].zero_()
    rows = inspect(gpt, windows(), L).attention_distance
    assert len(rows) == 4 * 4
    for row in rows:
        assert row["queries"] == 3 * L // 2
        assert row["distance"] / row["queries"] == pytest.approx(np.mean([i / 2 for i in range(L // 2, L)]))


@pytest.mark.parametrize(("pos", "attention"), BY_TURNS)
def test_inspection_leaves_the_model_unchanged(pos, attention):
    sizes = {"context_length": L, "layers": 4 if "schedule" in str(SCHEMES[pos]) else 2}
    gpt = make_gpt(SCHEMES[pos], ATTENTIONS[attention], **sizes)
    tokens = torch.from_numpy(windows()[:, :-1])
    before = gpt(tokens)
    rows = inspect(gpt, windows(), 2 * L).attention_distance
    assert torch.equal(gpt(tokens), before)
    assert all(0 <= row["distance"] <= row["queries"] * L for row in rows)
    assert not any(module._forward_hooks for module in gpt.modules())
    if attention == "flash":
        reference = make_gpt(SCHEMES[pos], ATTENTIONS["softmax"], **sizes)
        expected = inspect(reference, windows(), 2 * L).attention_distance
        assert [row["distance"] for row in rows] == pytest.approx([row["distance"] for row in expected])


def test_a_mixer_without_a_matrix_of_weights_is_left_out():
    gpt = make_gpt(SCHEMES["rope"], ATTENTIONS["softmax"], context_length=L)
    gpt.blocks[1].attention = Still(Options(), gpt.geometry, gpt.scheme)
    seen = inspect(gpt, windows(), L)
    assert {row["layer"] for row in seen.attention_distance} == {0, 2, 3}


class Still(Mixer):
    """A mixer that returns each token unchanged."""

    form = "O(L)"

    def forward(self, x, site):
        return x if site.last is None else x[:, -site.last :]


def test_a_scheme_is_inspected_on_the_models_device(monkeypatch):
    """As on a GPU, where tensors left on the CPU, such as a scheme's buffers, would raise an error."""
    gpt = make_gpt(SCHEMES["alibi"], ATTENTIONS["softmax"], context_length=L).to("meta")
    layer = gpt.scheme.layer(0)
    asked = []
    monkeypatch.setattr(layer, "pairwise_bias", lambda queries, keys: asked.append((queries, keys)))
    assert _bias(0, layer, [0, 3], next(gpt.parameters()).device) == []
    assert all(each.device.type == "meta" for pair in asked for each in pair)


def test_rotated_denominators_are_the_sums_of_the_weights():
    gpt, seen = looked_at("rope", "linear", seed=7)
    assert len(seen.denominators) == 4 * 4
    weights = []
    attention, own = gpt.blocks[2].attention, gpt.blocks[2].attention.attend
    attention.attend = lambda q, k, v, site: (
        weights.append(attention.weights(q, k, site)) or own(q, k, v, site)
    )
    gpt(torch.from_numpy(windows()[:, :-1]))
    by_head = torch.cat(weights).detach()
    for row in seen.denominators:
        if row["layer"] == 2:
            sums = by_head[:, row["head"]].sum(dim=-1)
            assert row["queries"] == sums.numel()
            assert row["weights"] == len(windows()) * L * (L + 1) // 2
            assert row["lowest"] == pytest.approx(float(sums.min()))
            assert row["vanished"] == int((sums <= 0).sum())
            assert row["negative"] == int((by_head[:, row["head"]] < 0).sum())


@pytest.mark.parametrize(("pos", "attention"), [("rope", "softmax"), ("alibi", "linear"), ("none", "linear")])
def test_other_models_have_no_rotated_denominators(pos, attention):
    assert looked_at(pos, attention)[1].denominators == []
