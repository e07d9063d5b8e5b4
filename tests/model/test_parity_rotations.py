"""Rotations, biases and rescalings against the transformers library's own code.

Their code runs in float64 here (fixture `in_float64`), so that the tolerance is of rounding, 1e-10 or less,
and a formula that is off by a little cannot hide in it. Where they force float32, the test says so.

Shapes: B batch, T tokens, H heads, K head width.
"""

import pytest
import torch
from transformers import GPTNeoXConfig
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox
from transformers.models.xlm.modeling_xlm import create_sinusoidal_embeddings

from poslab.model.rescaling import Rescaling
from support.pairwise import pairwise
from support.parity import L, close, make_rope, make_scheme, t5_pair, their_frequencies

pytestmark = pytest.mark.usefixtures("seeded")

# Frequencies

WIDTHS, BASES, FACTORS = [8, 80, 128], [1e3, 5e5, 1e6], [1.5, 4.0, 32.0]


@pairwise("width, base, factor, length", WIDTHS, BASES, [1.0, 2.0, 4.5], [1, L, L + 1, 16 * L])
def test_dynamic_ntk(width, base, factor, length, in_float64):
    ours = make_rope("rope_dynamic", width=width, base=base, factor=factor)
    theirs, _ = their_frequencies("dynamic", length, width=width, base=base, factor=factor)
    close(ours.frequencies(width, torch.arange(length)), theirs)
    plain = make_rope(width=width, base=base).frequencies(width, torch.arange(length))
    assert torch.allclose(theirs, plain, rtol=1e-12, atol=0) == (length <= L)


@pairwise("width, base, factor", WIDTHS, BASES, FACTORS)
def test_ntk_is_their_dynamic_at_factor_times_the_training_length(width, base, factor, in_float64):
    ours = make_rope("rope_ntk", width=width, base=base, factor=factor)
    theirs, _ = their_frequencies("dynamic", int(factor * L), width=width, base=base, factor=1.0)
    close(ours.frequencies(width, torch.arange(10)), theirs)


@pairwise("width, base, factor, original", WIDTHS, BASES, FACTORS, [6, 64, 1000, 8192])
def test_yarn(width, base, factor, original, in_float64):
    ours = make_rope("rope_yarn", width=width, base=base, factor=factor, original_length=original)
    theirs, scaling = their_frequencies(
        "yarn", width=width, base=base, factor=factor, original_max_position_embeddings=original
    )
    close(ours.frequencies(width, torch.arange(10)), theirs)
    assert ours.query_key_scale() == pytest.approx(scaling, rel=1e-15)


@pytest.mark.parametrize("original", [64, 1024])
def test_yarn_of_a_single_pair(original, in_float64):
    ours = make_rope("rope_yarn", width=2, factor=4.0, original_length=original)
    theirs, _ = their_frequencies("yarn", width=2, factor=4.0, original_max_position_embeddings=original)
    close(ours.frequencies(2, torch.arange(10)), theirs)


@pairwise(
    "width, base, factor, low, high, original",
    WIDTHS,
    BASES,
    [(8.0, 1.0, 4.0, 8192), (32.0, 1.0, 4.0, 8192), (2.0, 0.5, 8.0, 512), (4.0, 2.0, 3.0, 64)],
)
def test_llama3(width, base, factor, low, high, original, in_float64):
    options = {"factor": factor, "low": low, "high": high, "original_length": original}
    rope = {"factor": factor, "low_freq_factor": low, "high_freq_factor": high}
    rope["original_max_position_embeddings"] = original
    theirs, scaling = their_frequencies("llama3", width=width, base=base, **rope)
    ours = make_rope("rope_llama3", width=width, base=base, **options)
    close(ours.frequencies(width, torch.arange(10)), theirs)
    assert ours.query_key_scale() == scaling == 1


@pairwise("width, base, fraction", WIDTHS, BASES, [0.25, 0.5, 0.75, 0.9])
def test_p_rope_is_their_proportional(width, base, fraction, in_float64):
    ours = make_rope("rope_p", width=width, base=base, fraction=fraction)
    theirs, _ = their_frequencies("proportional", width=width, base=base, partial_rotary_factor=fraction)
    close(ours.frequencies(width, torch.arange(10)), theirs)
    assert 0 < (theirs == 0).sum() < width // 2


@pairwise("width, fraction, base", [(8, 0.25), (16, 0.5), (64, 0.25), (80, 0.4), (128, 0.75)], BASES)
def test_partial_rope(width, fraction, base, in_float64):
    config = GPTNeoXConfig(
        hidden_size=width * 4,
        num_attention_heads=4,
        rope_parameters={"rope_type": "default", "rope_theta": base, "partial_rotary_factor": fraction},
    )
    theirs, _ = gpt_neox.GPTNeoXRotaryEmbedding.compute_default_rope_parameters(config)
    ours = make_rope("rope_partial", width=width, base=base, fraction=fraction)
    turned = round(width * fraction)
    close(ours.frequencies(turned, torch.arange(10)), theirs)
    x = torch.randn(1, 4, 10, width)
    assert torch.equal(ours.rotate(x, torch.arange(10))[..., turned:], x[..., turned:])


@pytest.mark.parametrize(
    ("method", "rope_type"), [("pi", "linear"), ("dynamic", "dynamic"), ("yarn", "yarn")]
)
def test_a_rescaled_partial_rope_turns_as_theirs_with_a_partial_rotary_factor(method, rope_type, in_float64):
    """Not compared: YaRN's temperature, theirs on the turned part alone, ours on all of q and k."""
    factor = 1.0 if method == "dynamic" else 4.0
    ours = make_rope("rope_partial", width=64, fraction=0.5)
    ours.rescale(Rescaling(method, factor))
    options = {"factor": factor, "partial_rotary_factor": 0.5, "original_max_position_embeddings": L}
    theirs, _ = their_frequencies(rope_type, 4 * L, width=64, **options)
    close(ours.frequencies(32, torch.arange(4 * L)), theirs)


def test_an_interpolated_p_rope_is_their_proportional_with_a_factor(in_float64):
    ours = make_rope("rope_p", width=64, fraction=0.75)
    ours.rescale(Rescaling("pi", 4.0))
    theirs, _ = their_frequencies("proportional", width=64, partial_rotary_factor=0.75, factor=4.0)
    close(ours.frequencies(64, torch.arange(10)), theirs)


def test_yarn_changes_the_pairs_that_hope_turns_as_those_of_rope():
    rope, hope = (make_rope(name, width=64) for name in ("rope", "hope"))
    for scheme in (rope, hope):
        scheme.rescale(Rescaling("yarn", 4.0))
    positions = torch.arange(10)
    turned = make_rope("hope", width=64).frequencies(64, positions) > 0
    assert 0 < turned.sum() < 32
    close(hope.frequencies(64, positions), rope.frequencies(64, positions) * turned)


# Rotations


# Other places


@pytest.mark.parametrize("width", [8, 32, 64])
def test_sinusoidal_encoding_is_xlms(width):
    """Theirs is rounded to float32."""
    theirs = create_sinusoidal_embeddings(500, width, torch.empty(500, width))
    ours = make_scheme("sinusoidal", width=width, heads=1, base=10000.0, amplitude=1.0).encoding(
        torch.arange(500)
    )
    close(ours.float(), theirs, atol=1e-7)


@pytest.mark.parametrize(
    ("buckets", "max_distance"), [(32, 128), (16, 64), (64, 500), (4, 3), (32, 17), (20, 320)]
)
def test_t5_buckets_and_bias_are_t5s(buckets, max_distance):
    """Under (20, 320) a distance of 40 is on the edge of two buckets, and float32 says which."""
    scheme, attention = t5_pair(buckets, max_distance)
    theirs = attention.compute_bias(600, 600)[0]
    positions = torch.arange(600)
    ours = scheme.pairwise_bias(positions, positions)
    causal = torch.ones(600, 600, dtype=torch.bool).tril()
    assert torch.equal(ours[:, causal], theirs[:, causal])


# Rescaling after training
