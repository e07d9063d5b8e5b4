"""Schemes: properties, published formulas, and parity with the transformers library."""

import pytest
import torch
from conftest import POSITIONS, SCHEMES
from hypothesis import given, settings
from hypothesis import strategies as st

from poslab.config import ConfigError
from poslab.positions import Geometry, build_scheme
from poslab.positions.alibi import slopes

GEOMETRY = Geometry(width=64, heads=4, context_length=64)
ROPES = {name: section for name, section in POSITIONS.items() if section["scheme"] == "rope"}
WITH_TAIL = {
    name: section
    for name, section in SCHEMES.items()
    if (scheme := build_scheme(section, GEOMETRY)).bias(torch.arange(2)) is not None
    and scheme.tail() is not None
}


def randomised(section, geometry=GEOMETRY):
    scheme = build_scheme(section, geometry).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return scheme


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_keeps_shapes_and_acts_in_one_place(name):
    scheme = randomised(SCHEMES[name])
    positions = torch.arange(10)
    x = torch.randn(2, 10, 64, dtype=torch.float64)
    heads = torch.randn(2, 4, 10, 16, dtype=torch.float64)
    embedded, rotated, bias = (
        scheme.embed(x, positions),
        scheme.rotate(heads, positions),
        scheme.bias(positions),
    )
    assert embedded.shape == x.shape
    assert rotated.shape == heads.shape
    assert bias is None or bias.shape == (4, 10)
    acts = [not torch.equal(embedded, x), not torch.equal(rotated, heads), bias is not None]
    assert sum(acts) == (0 if name == "none" else 1)


@pytest.mark.parametrize("name", WITH_TAIL)
def test_tail_tells_the_truth_about_the_bias(name):
    """Past its horizon the bias changes by log_decay a token, and not one token sooner."""
    scheme = randomised(WITH_TAIL[name])
    tail = scheme.tail()
    bias = scheme.bias(torch.arange(1000)).double()
    steps = bias[:, 1:] - bias[:, :-1]
    torch.testing.assert_close(
        steps[:, tail.horizon :], tail.log_decay.double()[:, None].expand(4, 999 - tail.horizon)
    )
    if tail.horizon:
        assert not torch.allclose(steps[:, tail.horizon - 1], tail.log_decay.double())


def test_t5_becomes_constant_at_113():
    assert build_scheme(POSITIONS["t5"], GEOMETRY).tail().horizon == 113


@given(
    name=st.sampled_from(sorted(ROPES)),
    pairing=st.sampled_from(["half", "interleaved"]),
    shift=st.integers(0, 100_000),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_rope_keeps_norms_and_depends_on_distance_alone(name, pairing, shift, seed):
    scheme = build_scheme({**ROPES[name], "pairing": pairing}, GEOMETRY)
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, 1, 1, 8, 16, dtype=torch.float64, generator=generator)
    near, far = torch.arange(8), torch.arange(8) + shift
    torch.testing.assert_close(scheme.rotate(q, far).norm(dim=-1), q.norm(dim=-1))
    here = scheme.rotate(q, near) @ scheme.rotate(k, near).mT
    there = scheme.rotate(q, far) @ scheme.rotate(k, far).mT
    torch.testing.assert_close(here, there, atol=1e-9, rtol=1e-9)


def test_rope_turns_compose():
    """R(a) R(b) = R(a + b)."""
    scheme = build_scheme(POSITIONS["rope"], GEOMETRY)
    x = torch.randn(1, 1, 1, 16, dtype=torch.float64)
    once = scheme.rotate(scheme.rotate(x, torch.tensor([3])), torch.tensor([39]))
    torch.testing.assert_close(once, scheme.rotate(x, torch.tensor([42])))


def test_rope_pairings_are_the_same_up_to_a_permutation():
    half = build_scheme(POSITIONS["rope"], GEOMETRY)
    interleaved = build_scheme({**POSITIONS["rope"], "pairing": "interleaved"}, GEOMETRY)
    x = torch.randn(1, 1, 9, 16, dtype=torch.float64)
    order = torch.arange(16).reshape(2, 8).T.flatten()  # 0, 8, 1, 9, ...
    positions = torch.arange(9)
    torch.testing.assert_close(
        half.rotate(x, positions)[..., order], interleaved.rotate(x[..., order], positions)
    )


def test_rope_phases_are_exact_far_out():
    """At position 100,000 a float32 phase is wrong by about 5e-3; ours is cast last."""
    scheme = build_scheme(POSITIONS["rope"], GEOMETRY)
    x = torch.zeros(1, 1, 1, 16)
    x[..., 0] = 1.0
    turned = scheme.rotate(x, torch.tensor([100_000]))
    assert turned[0, 0, 0, 0].item() == pytest.approx(torch.tensor(100_000.0).double().cos().item(), abs=1e-7)


def test_alibi_slopes_follow_the_published_rule():
    assert slopes(8) == [2.0**-power for power in range(1, 9)]
    assert slopes(4) == [2.0**-power for power in (2, 4, 6, 8)]
    assert slopes(12)[:8] == slopes(8)
    assert slopes(12)[8:] == [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]


def test_learned_has_no_value_past_its_length():
    assert build_scheme(POSITIONS["learned"], GEOMETRY).max_length == 64
    assert build_scheme(POSITIONS["rope"], GEOMETRY).max_length is None


@pytest.mark.parametrize("name", ["rope", "sinusoidal"])
def test_odd_widths_are_refused(name):
    with pytest.raises(ConfigError, match="even"):
        build_scheme(POSITIONS[name], Geometry(width=15, heads=3, context_length=8))


def test_unknown_scheme_names_those_there_are():
    with pytest.raises(ConfigError, match="alibi, learned, none"):
        build_scheme({"scheme": "rotery"}, GEOMETRY)


class TestParityWithTransformers:
    @pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 8, 12, 16, 20, 71])
    def test_alibi_slopes_as_in_bloom(self, heads):
        from transformers.models.bloom.modeling_bloom import build_alibi_tensor

        theirs = build_alibi_tensor(torch.ones(1, 5), heads, torch.float32)  # m_h * key position
        torch.testing.assert_close(theirs[:, 0, 1], torch.tensor(slopes(heads)), rtol=1e-6, atol=0)

    @pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (16, 64), (64, 1000)])
    def test_t5_buckets(self, buckets, max_distance):
        from transformers.models.t5.modeling_t5 import T5Attention

        distance = torch.arange(3000)
        theirs = T5Attention._relative_position_bucket(
            -distance, bidirectional=False, num_buckets=buckets, max_distance=max_distance
        )
        section = {"scheme": "t5", "buckets": buckets, "max_distance": max_distance}
        ours = build_scheme(section, GEOMETRY).bucket(distance)
        assert torch.equal(ours, theirs)

    @pytest.mark.parametrize("name", ROPES)
    def test_rope_half_pairing_as_in_llama(self, name):
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

        base = ROPES[name]["base"]
        config = LlamaConfig(
            hidden_size=64,
            num_attention_heads=4,
            rope_parameters={"rope_type": "default", "rope_theta": base},
        )
        q, k = torch.randn(2, 2, 4, 50, 16)
        positions = torch.arange(50)
        cos, sin = LlamaRotaryEmbedding(config)(q, positions[None])
        theirs = apply_rotary_pos_emb(q, k, cos, sin)
        scheme = build_scheme({**ROPES[name], "pairing": "half"}, GEOMETRY)
        torch.testing.assert_close(scheme.rotate(q, positions), theirs[0], atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(scheme.rotate(k, positions), theirs[1], atol=2e-5, rtol=1e-4)

    def test_rope_interleaved_pairing_as_in_gptj(self):
        from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb, create_sinusoidal_positions

        x = torch.randn(2, 50, 4, 16)  # (B, T, H, K) there
        sin, cos = create_sinusoidal_positions(50, 16).split(8, dim=-1)
        theirs = apply_rotary_pos_emb(x, sin[None], cos[None])
        scheme = build_scheme({**POSITIONS["rope"], "pairing": "interleaved"}, GEOMETRY)
        ours = scheme.rotate(x.transpose(1, 2), torch.arange(50)).transpose(1, 2)
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)

    def test_sinusoidal_as_in_marian(self):
        """Marian keeps sines in the first half of the width and cosines in the second; the values agree."""
        from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

        module = MarianSinusoidalPositionalEmbedding(60, 64)
        theirs = module.create_weight() if hasattr(module, "create_weight") else module._init_weight()
        ours = build_scheme(POSITIONS["sinusoidal"], GEOMETRY).encoding(torch.arange(60)).float()
        regrouped = torch.cat([ours[:, 0::2], ours[:, 1::2]], dim=-1)
        torch.testing.assert_close(regrouped, torch.as_tensor(theirs).float(), atol=1e-5, rtol=1e-4)
