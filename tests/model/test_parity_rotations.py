"""Rotations, biases and rescalings compared with the code of the transformers library.

Their code runs in float64 here (fixture `in_float64`), so that the tolerance is of rounding, 1e-10 or less,
and a formula that is off by a little cannot hide in it. Where they force float32, the test says so.

Shapes: B batch, T tokens, H heads, K head width.
"""

from itertools import product

import pytest
import torch
from transformers import GPTJConfig, GPTNeoXConfig, LlamaConfig, T5Config
from transformers import modeling_rope_utils as rope_utils
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.t5 import modeling_t5 as t5
from transformers.models.xlm.modeling_xlm import create_sinusoidal_embeddings

from poslab.model.rescaling import Rescaling
from support.gradients import assert_same_with_gradients
from support.pairwise import pairwise
from support.parity import L, close, make_scheme, scattered, scores


def make_rope(name="rope", *, base=10000.0, pairing="half", **options):
    return make_scheme(name, base=base, pairing=pairing, **options)


def llama_config(rope_type="default", *, width=16, heads=4, context_length=L, base=10000.0, **rope):
    return LlamaConfig(
        hidden_size=width * heads,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=width,
        max_position_embeddings=context_length,
        rope_parameters={"rope_type": rope_type, "rope_theta": base, **rope},
        attn_implementation="eager",
    )


def their_frequencies(rope_type, length=None, **options):
    config = llama_config(rope_type, **options)
    return rope_utils.ROPE_INIT_FUNCTIONS[rope_type](config, seq_len=length)


# Frequencies

WIDTHS, BASES, FACTORS = [8, 80, 128], [1e3, 5e5, 1e6], [1.5, 4.0, 32.0]


def published():
    """Yield a scheme with its options, the library's name and options for it, and a length that matters."""
    for factor, length in product([1.0, 2.0, 4.5], [1, L, L + 1, 16 * L]):
        yield "rope_dynamic", {"factor": factor}, "dynamic", {"factor": factor}, length
    for factor in FACTORS:  # NTK is their dynamic scaling at `factor` times the training length
        yield "rope_ntk", {"factor": factor}, "dynamic", {"factor": 1.0}, int(factor * L)
        for original in (6, 64, 1000, 8192):
            theirs = {"factor": factor, "original_max_position_embeddings": original}
            yield "rope_yarn", {"factor": factor, "original_length": original}, "yarn", theirs, 10
    for factor, low, high, original in ((8, 1, 4, 8192), (32, 1, 4, 8192), (2, 0.5, 8, 512), (4, 2, 3, 64)):
        ours = {"factor": float(factor), "low": float(low), "high": float(high), "original_length": original}
        theirs = {"factor": factor, "low_freq_factor": low, "high_freq_factor": high}
        yield "rope_llama3", ours, "llama3", {**theirs, "original_max_position_embeddings": original}, 10
    for fraction in (0.25, 0.5, 0.75, 0.9):
        yield "rope_p", {"fraction": fraction}, "proportional", {"partial_rotary_factor": fraction}, 10


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("base", BASES)
def test_frequencies_are_the_librarys(width, base, in_float64):
    for name, options, rope_type, rope, length in published():
        ours = make_rope(name, width=width, base=base, **options)
        theirs, scaling = their_frequencies(rope_type, length, width=width, base=base, **rope)
        close(ours.frequencies(width, torch.arange(length)), theirs)
        assert ours.query_key_scale() == pytest.approx(scaling, rel=1e-15), name


@pytest.mark.parametrize("original", [64, 1024])
def test_yarn_of_a_single_pair(original, in_float64):
    ours = make_rope("rope_yarn", width=2, factor=4.0, original_length=original)
    theirs, _ = their_frequencies("yarn", width=2, factor=4.0, original_max_position_embeddings=original)
    close(ours.frequencies(2, torch.arange(10)), theirs)


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
def test_a_rescaled_partial_rope_equals_theirs_with_a_partial_rotary_factor(method, rope_type, in_float64):
    """Not compared: YaRN's temperature, which they apply to the rotated part only, we to all of q and k."""
    factor = 1.0 if method == "dynamic" else 4.0
    ours = make_rope("rope_partial", width=64, fraction=0.5)
    ours.rescale(Rescaling(method, factor))
    options = {"factor": factor, "partial_rotary_factor": 0.5, "original_max_position_embeddings": L}
    theirs, _ = their_frequencies(rope_type, 4 * L, width=64, **options)
    close(ours.frequencies(32, torch.arange(4 * L)), theirs)


def test_an_interpolated_p_rope_equals_their_proportional_with_a_factor(in_float64):
    ours = make_rope("rope_p", width=64, fraction=0.75)
    ours.rescale(Rescaling("pi", 4.0))
    theirs, _ = their_frequencies("proportional", width=64, partial_rotary_factor=0.75, factor=4.0)
    close(ours.frequencies(64, torch.arange(10)), theirs)


def test_yarn_rescales_the_pairs_that_hope_turns_as_in_rope():
    rope, hope = (make_rope(name, width=64) for name in ("rope", "hope"))
    for scheme in (rope, hope):
        scheme.rescale(Rescaling("yarn", 4.0))
    positions = torch.arange(10)
    turned = make_rope("hope", width=64).frequencies(64, positions) > 0
    assert 0 < turned.sum() < 32
    close(hope.frequencies(64, positions), rope.frequencies(64, positions) * turned)


# Rotations


def assert_same_scores(scheme, positions, turned, tolerance=1e-10):
    """Check that scores are the products of `turned` queries and keys, with the gradients of both."""
    q, k = torch.randn(2, 2, 4, len(positions), 16, requires_grad=True)
    theirs = turned(q) @ turned(k).mT / 16**0.5
    causal = torch.ones(theirs.shape[-2:], dtype=torch.bool).tril()
    ours = scores(scheme, q, k, positions)
    assert_same_with_gradients(ours[..., causal], theirs[..., causal], [q, k], tolerance)


YARN = {"factor": 4.0, "original_max_position_embeddings": 256}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "factor": 8.0}


@pytest.mark.parametrize("below", [150, 100_000])
@pytest.mark.parametrize(
    ("name", "options", "rope_type", "rope"),
    [
        ("rope", {}, "default", {}),
        ("rope_pi", {"factor": 3.0}, "linear", {"factor": 3.0}),
        ("rope_dynamic", {"factor": 2.0}, "dynamic", {"factor": 2.0}),
        ("rope_yarn", {"factor": 4.0, "original_length": 256}, "yarn", YARN),
        (
            "rope_llama3",
            {"factor": 8.0, "low": 1.0, "high": 4.0, "original_length": 256},
            "llama3",
            {"original_max_position_embeddings": 256, **LLAMA3},
        ),
        ("rope_p", {"fraction": 0.75}, "proportional", {"partial_rotary_factor": 0.75}),
    ],
)
def test_scores_are_llamas(name, options, rope_type, rope, below, in_float64):
    """Past L, and at scattered positions, where a phase of 1e5 is precise to 1e-11."""
    positions = scattered(150, below)
    rotary = llama.LlamaRotaryEmbedding(llama_config(rope_type, **rope))
    turns = rotary(torch.zeros(1), positions[None])
    scheme, tolerance = make_rope(name, **options), 1e-10 if below == 150 else 1e-8
    assert_same_scores(scheme, positions, lambda x: llama.apply_rotary_pos_emb(x, x, *turns)[0], tolerance)


@pytest.mark.parametrize("turned", [4, 8])
def test_scores_are_gptjs(turned, in_float64):
    rotary = gptj.GPTJRotaryEmbedding(GPTJConfig(rotary_dim=turned, n_positions=150))
    sines_and_cosines = rotary(torch.zeros(1), torch.arange(150)[None])
    scheme = make_rope("rope_partial", pairing="interleaved", fraction=turned / 16)

    def theirs(x):
        part = gptj.apply_rotary_pos_emb(x[..., :turned].transpose(1, 2), *sines_and_cosines)
        return torch.cat([part.transpose(1, 2), x[..., turned:]], dim=-1)

    assert_same_scores(scheme, torch.arange(150), theirs)


# Other schemes


@pytest.mark.parametrize("heads", [1, 3, 8, 12])
def test_alibi_is_blooms(heads, in_float64):
    """BLOOM adds m_h times the key's position, which differs by a constant per row."""
    theirs, positions = build_alibi_tensor(torch.ones(1, 150), heads, torch.float64), torch.arange(150)
    ours = make_scheme("alibi", heads=heads).pairwise_bias(positions, positions)
    causal = torch.ones(150, 150, dtype=torch.bool).tril()
    close(ours[:, causal], (theirs - theirs.mT)[:, causal])


@pytest.mark.parametrize("width", [8, 32, 64])
def test_sinusoidal_encoding_is_xlms(width):
    """Theirs is rounded to float32."""
    theirs = create_sinusoidal_embeddings(500, width, torch.empty(500, width))
    ours = make_scheme("sinusoidal", width=width, heads=1, base=10000.0, amplitude=1.0).encoding(
        torch.arange(500)
    )
    close(ours.float(), theirs, atol=1e-7)


def t5_pair(buckets, max_distance):
    """Return our scheme and T5's attention with the same biases; its table is ours times sqrt K."""
    config = T5Config(
        d_model=64,
        d_kv=16,
        num_heads=4,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=True,
        is_encoder_decoder=False,
        dropout_rate=0.0,
        attn_implementation="eager",
    )
    scheme = make_scheme("t5", buckets=buckets, max_distance=max_distance)
    attention = t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0, is_causal=True).double()
    with torch.no_grad():
        attention.relative_attention_bias.weight.copy_(scheme.bucket_bias * 16**0.5)
    return scheme, attention


@pytest.mark.parametrize(
    ("buckets", "max_distance"), [(32, 128), (16, 64), (64, 500), (4, 3), (32, 17), (20, 320)]
)
def test_t5_buckets_and_bias_are_t5s(buckets, max_distance):
    """With (20, 320) a distance of 40 is on the edge of two buckets, and float32 rounding decides."""
    scheme, attention = t5_pair(buckets, max_distance)
    theirs = attention.compute_bias(600, 600)[0]
    positions = torch.arange(600)
    ours = scheme.pairwise_bias(positions, positions)
    causal = torch.ones(600, 600, dtype=torch.bool).tril()
    assert torch.equal(ours[:, causal], theirs[:, causal])
