"""Schemes: properties and published values. Other implementations: test_parity_rotations.py."""

from dataclasses import replace

import pytest
import torch

from poslab.config.schema import ConfigError
from poslab.model.kernels.rotation import turn
from poslab.model.positions import Geometry, build_scheme
from poslab.model.rescaling import METHODS, Rescaling
from support.gradients import assert_same_with_gradients
from support.models import ATTENTIONS, BY_TURNS, POSITIONS, SCHEMES, make_gpt

GEOMETRY = Geometry(width=64, heads=4, context_length=64, layers=4)
RESCALABLE = [
    name for name, section in SCHEMES.items() if build_scheme(section, GEOMETRY).rescale(Rescaling("pi", 2.0))
]


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("laid_out", ["B H T W", "B T H W"])
def test_the_fast_rotation_equals_the_plain_one_with_its_gradient(pairing, laid_out):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 7, 10, dtype=torch.float64, generator=generator)
    if laid_out == "B T H W":
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    phase = 10 * torch.randn(7, 5, dtype=torch.float64, generator=generator)
    x.requires_grad_()
    fast, plain = turn(x, phase, pairing), turn(x, phase.clone().requires_grad_(), pairing)
    assert_same_with_gradients(fast, plain, [x], tolerance=1e-13)


@pytest.mark.parametrize(("pos", "attention"), BY_TURNS)
def test_a_model_can_be_trained_after_it_was_evaluated(pos, attention):
    """No tensor of inference mode, which takes no part in gradients, is reused."""
    gpt, tokens = make_gpt(SCHEMES[pos], ATTENTIONS[attention]), torch.arange(40)[None]
    with torch.inference_mode():
        gpt(tokens)
    gpt(tokens).sum().backward()
    assert all(parameter.grad is not None for parameter in gpt.parameters())


@pytest.mark.parametrize("name", RESCALABLE)
@pytest.mark.parametrize("method", METHODS)
def test_rescaling_changes_a_rotation_and_can_be_undone(name, method):
    scheme = build_scheme(SCHEMES[name], GEOMETRY)
    inner, positions = scheme.layer(0), scheme.place(128, None)  # at 2 L
    x = torch.randn(1, 4, len(positions), 16, dtype=torch.float64)
    before = inner.rotate_queries(x, positions)
    assert scheme.rescale(Rescaling(method, 4.0))
    after = inner.rotate_queries(x, positions)
    drawn = name == "rope_randomised"  # never longer than in training
    assert torch.allclose(after, before) == (drawn and method == "dynamic")
    assert scheme.rescale(None)
    assert torch.equal(inner.rotate_queries(x, positions), before)


def test_schemes_without_a_rotation_cannot_be_rescaled():
    added = ["sinusoidal", "learned", "t5", "alibi", "kerple", "fire"]
    others = ["none", "cope", "fope", "stick_breaking"]
    by_content = [name for name in SCHEMES if build_scheme(SCHEMES[name], GEOMETRY).layer(0).by_content]
    assert set(SCHEMES) - set(RESCALABLE) == {*added, *others, *by_content}


def test_a_schedule_has_separate_gates_by_layer():
    section = {
        "scheme": "schedule",
        "layers": ["fox", "alibi"],
        "schemes": {"fox": SCHEMES["fox"], "alibi": {"scheme": "alibi"}},
    }
    scheme = build_scheme(section, GEOMETRY)
    assert scheme.layer(0) is not scheme.layer(2)
    assert scheme.layer(1) is scheme.layer(3)
    assert sum(parameter.numel() for parameter in scheme.parameters()) == 2 * (4 * 64 + 4)


def test_randomised_positions_are_sorted_distinct_and_drawn_by_the_stream():
    scheme = build_scheme(POSITIONS["rope_randomised"], GEOMETRY)
    drawn = [scheme.place(64, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert (drawn[0].diff() > 0).all()
    assert drawn[0].max() < scheme.max_length == 16 * 64
    assert torch.equal(scheme.place(64, None), scheme.place(64, None))
    assert scheme.place(1024, None).tolist() == list(range(1024))


def test_kerples_parameters_recover_from_below_their_minimum():
    scheme = build_scheme(POSITIONS["kerple"], GEOMETRY)
    with torch.no_grad():
        scheme.r1.fill_(-0.5)
    bias = scheme.bias(torch.arange(10))
    torch.testing.assert_close(bias, -0.01 * torch.log1p(scheme.r2[:, None] * torch.arange(10)))
    bias.sum().backward()
    assert (scheme.r1.grad < 0).all()


def test_xpos_ends_at_the_range_of_float32():
    scheme = build_scheme(POSITIONS["xpos"], GEOMETRY)
    x = torch.ones(1, 1, scheme.max_length, 16)
    positions = torch.arange(scheme.max_length)
    q, k = scheme.rotate_queries(x, positions), scheme.rotate_keys(x, positions)
    assert torch.isfinite(q).all()
    assert torch.isfinite(k).all()
    assert 60_000 < scheme.max_length < 70_000


@pytest.mark.parametrize(
    ("length", "table"), [(16, {}), (50, {}), (112, {}), (113, {}), (16, {"buckets": 8})]
)
def test_t5_reports_the_distance_from_which_buckets_are_untrained(length, table):
    """Also inside another scheme; distances outside a window are not reported."""
    section = POSITIONS["t5"] | table

    def scheme(**changes):
        return build_scheme(section, replace(GEOMETRY, context_length=length, **changes))

    t5 = scheme()
    t5.bias(torch.arange(length)).sum().backward()
    distances = torch.arange(4 * 128)
    unread = (t5.bucket_bias.grad == 0).all(1)[t5.bucket(distances)]
    first = next((int(at) for at in distances[unread]), None)
    assert t5.untrained_from == first
    assert scheme(window=length).untrained_from is None
    assert scheme(consecutive=False).untrained_from is None
    schedule = {
        "scheme": "schedule",
        "layers": ["t5", "none"],
        "schemes": {"t5": section, "none": POSITIONS["none"]},
    }
    assert build_scheme(schedule, replace(GEOMETRY, context_length=length)).untrained_from == first


@pytest.mark.parametrize("name", ["rope", "xpos", "rope_learned"])
def test_dropping_positions_drops_all_of_them(name):
    gpt = make_gpt(POSITIONS[name], ATTENTIONS["softmax"])
    tokens = torch.randint(0, 50, (1, 30), generator=torch.Generator().manual_seed(0))
    gpt.scheme.rescale(Rescaling("drop", 1.0))
    gpt(tokens, targets=tokens).backward()
    assert all(parameter.grad is not None for parameter in gpt.parameters())  # as several devices require
    assert gpt.scheme.max_length is None or name == "xpos"
    without = make_gpt(POSITIONS["none"], ATTENTIONS["softmax"])
    torch.testing.assert_close(gpt(tokens), without(tokens), atol=1e-12, rtol=0)


@pytest.mark.parametrize("names", [("keys", "scheme"), ("b", "a")])
def test_the_names_in_a_schedule_have_no_effect(names):
    first, second = names

    def logits(t5, alibi):
        section = {
            "scheme": "schedule",
            "layers": [t5, alibi],
            "schemes": {alibi: SCHEMES["alibi"], t5: SCHEMES["t5"]},
        }
        return make_gpt(section, ATTENTIONS["softmax"])(torch.arange(40)[None])

    assert torch.equal(logits(first, second), logits("t5", "alibi"))


@pytest.mark.parametrize("attention", ["flash", "linear"])
@pytest.mark.parametrize("inner", ["learned", "t5", "alibi", "rope", "kerple", "rope_none", "inkling"])
def test_randomised_positions_work_with_any_scheme(inner, attention):
    """T5's horizon of 113 is past all positions that are drawn from 4 x 16."""
    section = {"scheme": "randomised", "stretch": 4, "of": POSITIONS[inner]}
    if inner in ("kerple", "inkling") and attention == "linear":
        with pytest.raises(ConfigError, match="choose"):
            make_gpt(section, ATTENTIONS[attention])
        return
    gpt, reference = (
        make_gpt(section, ATTENTIONS[kind], context_length=16) for kind in (attention, "softmax")
    )
    tokens = torch.randint(0, 50, (1, 16), generator=torch.Generator().manual_seed(0))
    consecutive = gpt(tokens, positions=torch.arange(16))
    assert torch.isfinite(gpt(tokens)).all()
    assert not torch.allclose(gpt(tokens), consecutive)
    if attention == "flash":
        torch.testing.assert_close(gpt(tokens), reference(tokens), atol=1e-9, rtol=1e-9)
