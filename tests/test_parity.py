"""Parity with the transformers library's own code, and where it has none with the papers, pair by pair.

Their code runs in float64 here (fixture `in_float64`), so that the tolerance is of rounding, 1e-10 or less,
and a formula that is off by a little cannot hide in it. Where they force float32, the test says so.

Shapes: B batch, T tokens, H heads, K head width, D model width.
"""

import math
from dataclasses import dataclass

import pytest
import torch
from torch.nn.functional import elu, logsigmoid, softplus
from transformers import (
    BloomConfig,
    GPTJConfig,
    GPTNeoXConfig,
    Llama4TextConfig,
    LlamaConfig,
    MptConfig,
    SmolLM3Config,
    T5Config,
)
from transformers import modeling_rope_utils as rope_utils
from transformers.models.bloom import modeling_bloom as bloom
from transformers.models.falcon import modeling_falcon as falcon
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.mpt import modeling_mpt as mpt
from transformers.models.roformer import modeling_roformer as roformer
from transformers.models.t5 import modeling_t5 as t5
from transformers.models.xlm.modeling_xlm import create_sinusoidal_embeddings

from poslab.model.attention import Site, build_attention
from poslab.model.positions import Geometry, build_scheme
from poslab.model.positions.alibi import slopes
from poslab.model.rescaling import Rescaling

L = 64  # the training length
LENGTH = 150  # past L, and more than one strip of flash attention
FUSED = pytest.mark.parametrize("kind", ["softmax", "flash"])
PAIRINGS = pytest.mark.parametrize("pairing", ["half", "interleaved"])


class TorchInFloat64:
    """`torch` as their modules see it, where float32 is float64."""

    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@pytest.fixture
def in_float64(monkeypatch):
    for module in (rope_utils, bloom, gpt_neox, gptj, llama):
        monkeypatch.setattr(module, "torch", TorchInFloat64())
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def make_scheme(name, *, width=16, heads=4, context_length=L, **options):
    """The scheme of that module, all its parameters drawn at random."""
    geometry = Geometry(width * heads, heads, context_length, 1)
    scheme = build_scheme({"scheme": name, **options}, geometry).double()
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.normal_()
    return scheme


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
    if rope_type == "default":
        return llama.LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    return rope_utils.ROPE_INIT_FUNCTIONS[rope_type](config, seq_len=length)


def scattered(count, below):
    """Ascending positions, as randomised positions are."""
    return torch.randperm(below)[:count].sort().values


def close(ours, theirs, rtol=1e-12, atol=0.0):
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)


# Frequencies

WIDTHS = pytest.mark.parametrize("width", [8, 80, 128])
BASES = pytest.mark.parametrize("base", [1e3, 5e5, 1e6])


@WIDTHS
@BASES
def test_plain_rope(width, base, in_float64):
    ours = make_rope(width=width, base=base).frequencies(width, torch.arange(10))
    close(ours, their_frequencies("default", width=width, base=base)[0])


@WIDTHS
@BASES
@pytest.mark.parametrize("factor", [1.5, 4.0, 32.0])
def test_position_interpolation_is_their_linear(width, base, factor, in_float64):
    ours = make_rope("rope_pi", width=width, base=base, factor=factor)
    theirs, scaling = their_frequencies("linear", width=width, base=base, factor=factor)
    close(ours.frequencies(width, torch.arange(10)), theirs)
    assert ours.temperature() == scaling == 1


@WIDTHS
@BASES
@pytest.mark.parametrize("factor", [1.0, 2.0, 4.5])
@pytest.mark.parametrize("length", [1, L, L + 1, 16 * L])
def test_dynamic_ntk(width, base, factor, length, in_float64):
    ours = make_rope("rope_dynamic", width=width, base=base, factor=factor)
    theirs, _ = their_frequencies("dynamic", length, width=width, base=base, factor=factor)
    close(ours.frequencies(width, torch.arange(length)), theirs)
    plain = make_rope(width=width, base=base).frequencies(width, torch.arange(length))
    assert torch.allclose(theirs, plain, rtol=1e-12, atol=0) == (length <= L)


@WIDTHS
@BASES
@pytest.mark.parametrize("factor", [1.5, 4.0, 32.0])
def test_ntk_is_their_dynamic_at_factor_times_the_training_length(width, base, factor, in_float64):
    ours = make_rope("rope_ntk", width=width, base=base, factor=factor)
    theirs, _ = their_frequencies("dynamic", int(factor * L), width=width, base=base, factor=1.0)
    close(ours.frequencies(width, torch.arange(10)), theirs)


@WIDTHS
@BASES
@pytest.mark.parametrize("factor", [1.5, 4.0, 32.0])
@pytest.mark.parametrize("original", [6, 64, 1000, 8192])
def test_yarn(width, base, factor, original, in_float64):
    ours = make_rope("rope_yarn", width=width, base=base, factor=factor, original_length=original)
    theirs, scaling = their_frequencies(
        "yarn", width=width, base=base, factor=factor, original_max_position_embeddings=original
    )
    close(ours.frequencies(width, torch.arange(10)), theirs)
    assert ours.temperature() == pytest.approx(scaling, rel=1e-15)


@pytest.mark.parametrize(
    "original",
    [
        64,
        1024,
    ],
)
def test_yarn_of_a_single_pair(original, in_float64):
    ours = make_rope("rope_yarn", width=2, factor=4.0, original_length=original)
    theirs, _ = their_frequencies("yarn", width=2, factor=4.0, original_max_position_embeddings=original)
    close(ours.frequencies(2, torch.arange(10)), theirs)


@WIDTHS
@BASES
@pytest.mark.parametrize(
    ("factor", "low", "high", "original"),
    [(8.0, 1.0, 4.0, 8192), (32.0, 1.0, 4.0, 8192), (2.0, 0.5, 8.0, 512), (4.0, 2.0, 3.0, 64)],
)
def test_llama3(width, base, factor, low, high, original, in_float64):
    options = {"factor": factor, "low": low, "high": high, "original_length": original}
    theirs, scaling = their_frequencies(
        "llama3",
        width=width,
        base=base,
        factor=factor,
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_position_embeddings=original,
    )
    ours = make_rope("rope_llama3", width=width, base=base, **options)
    close(ours.frequencies(width, torch.arange(10)), theirs)
    assert ours.temperature() == scaling == 1


@WIDTHS
@BASES
@pytest.mark.parametrize("fraction", [0.25, 0.5, 0.75, 0.9])
def test_p_rope_is_their_proportional(width, base, fraction, in_float64):
    ours = make_rope("rope_p", width=width, base=base, fraction=fraction)
    theirs, _ = their_frequencies("proportional", width=width, base=base, partial_rotary_factor=fraction)
    close(ours.frequencies(width, torch.arange(10)), theirs)
    assert 0 < (theirs == 0).sum() < width // 2


@BASES
@pytest.mark.parametrize(("width", "fraction"), [(8, 0.25), (16, 0.5), (64, 0.25), (80, 0.4), (128, 0.75)])
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
    theirs, _ = their_frequencies(
        rope_type,
        4 * L,
        width=64,
        factor=factor,
        partial_rotary_factor=0.5,
        original_max_position_embeddings=L,
    )
    close(ours.frequencies(32, torch.arange(4 * L)), theirs)


def test_an_interpolated_p_rope_is_their_proportional_with_a_factor(in_float64):
    ours = make_rope("rope_p", width=64, fraction=0.75)
    ours.rescale(Rescaling("pi", 4.0))
    theirs, _ = their_frequencies("proportional", width=64, partial_rotary_factor=0.75, factor=4.0)
    close(ours.frequencies(64, torch.arange(10)), theirs)


@dataclass(frozen=True)
class Pair:
    """A scheme of ours and the rope type of theirs that is the same."""

    name: str
    ours: dict
    rope_type: str
    theirs: dict

    def scheme(self, **options):
        return make_rope(self.name, **self.ours, **options)

    def config(self, **options):
        return llama_config(self.rope_type, **self.theirs, **options)


SAME = {
    pair.rope_type: pair
    for pair in (
        Pair("rope", {}, "default", {}),
        Pair("rope_pi", {"factor": 3.0}, "linear", {"factor": 3.0}),
        Pair("rope_dynamic", {"factor": 2.0}, "dynamic", {"factor": 2.0}),
        Pair(
            "rope_yarn",
            {"factor": 4.0, "original_length": 256},
            "yarn",
            {"factor": 4.0, "original_max_position_embeddings": 256},
        ),
        Pair(
            "rope_llama3",
            {"factor": 8.0, "low": 1.0, "high": 4.0, "original_length": 256},
            "llama3",
            {
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 256,
            },
        ),
        Pair("rope_p", {"fraction": 0.75}, "proportional", {"partial_rotary_factor": 0.75}),
    )
}


@pytest.mark.parametrize("rope_type", SAME)
def test_no_two_of_these_rope_types_are_the_same(rope_type):
    """Else the tests of one could pass by the other's code."""
    pair = SAME[rope_type]
    ours = pair.scheme().frequencies(16, torch.arange(LENGTH))
    for other in SAME.values():
        same = torch.allclose(other.scheme().frequencies(16, torch.arange(LENGTH)), ours, rtol=1e-3)
        assert same == (other is pair)


# Rotations


def turned_by_both(pair, q, k, positions):
    scheme = pair.scheme()
    ours = (
        scheme.rotate_queries(scheme.logit_features(q), positions),
        scheme.rotate_keys(scheme.logit_features(k), positions),
    )
    cos, sin = llama.LlamaRotaryEmbedding(pair.config())(q, positions[None])
    return ours, llama.apply_rotary_pos_emb(q, k, cos, sin)


@pytest.mark.parametrize("rope_type", SAME)
@pytest.mark.parametrize("below", [L // 2, LENGTH, 100_000])
def test_rotation_is_llamas(rope_type, below, in_float64):
    """Below and past L, and at scattered positions up to 100,000. A phase of 1e5 is known to 1e-11."""
    positions = torch.arange(below) if below <= LENGTH else scattered(LENGTH, below)
    q, k = torch.randn(2, 2, 4, len(positions), 16)
    ours, theirs = turned_by_both(SAME[rope_type], q, k, positions)
    for our, their in zip(ours, theirs, strict=True):
        close(our, their, atol=1e-9)


@pytest.mark.parametrize("rope_type", SAME)
def test_rotation_is_llamas_as_it_ships_in_float32(rope_type):
    """Their float32 phases are off by some 1e-5 at position 150."""
    q, k = torch.randn(2, 2, 4, LENGTH, 16)
    ours, theirs = turned_by_both(SAME[rope_type], q, k, torch.arange(LENGTH))
    for our, their in zip(ours, theirs, strict=True):
        close(our, their, atol=1e-4)


def gptjs_rope(rotary_dim):
    if rotary_dim == 16:
        return make_rope(pairing="interleaved")
    return make_rope("rope_partial", pairing="interleaved", fraction=rotary_dim / 16)


@pytest.mark.parametrize("rotary_dim", [4, 8, 16])
def test_interleaved_rotation_is_gptjs(rotary_dim, in_float64):
    x = torch.randn(2, LENGTH, 4, 16)  # (B, T, H, K) there
    sin, cos = gptj.create_sinusoidal_positions(LENGTH, rotary_dim)[None].chunk(2, dim=-1)
    turned = gptj.apply_rotary_pos_emb(x[..., :rotary_dim], sin, cos)
    theirs = torch.cat([turned, x[..., rotary_dim:]], dim=-1)
    scheme = gptjs_rope(rotary_dim)
    ours = scheme.rotate(x.transpose(1, 2), torch.arange(LENGTH)).transpose(1, 2)
    close(ours, theirs, atol=1e-11)


def test_interleaved_rotation_is_roformers(in_float64):
    """Of RoPE's own authors; their table is rounded to float32."""
    table = roformer.RoFormerSinusoidalPositionalEmbedding(LENGTH, 16).create_weight()
    q, k = torch.randn(2, 2, 4, LENGTH, 16)
    theirs = roformer.RoFormerSelfAttention.apply_rotary_position_embeddings(table[None, None], q, k)
    scheme = make_rope(pairing="interleaved")
    close(scheme.rotate_queries(q, torch.arange(LENGTH)), theirs[0], atol=1e-6)
    close(scheme.rotate_keys(k, torch.arange(LENGTH)), theirs[1], atol=1e-6)


@pytest.mark.parametrize("fraction", [0.25, 0.5])
def test_partial_rotation_is_gpt_neoxs(fraction, in_float64):
    config = neox_config(fraction)
    q, k = torch.randn(2, 2, 4, LENGTH, 16)
    positions = torch.arange(LENGTH)
    theirs = gpt_neox.apply_rotary_pos_emb(q, k, *gpt_neox.GPTNeoXRotaryEmbedding(config)(q, positions[None]))
    scheme = make_rope("rope_partial", fraction=fraction)
    close(scheme.rotate_queries(q, positions), theirs[0], atol=1e-11)
    close(scheme.rotate_keys(k, positions), theirs[1], atol=1e-11)


# Other places


@pytest.mark.parametrize("width", [8, 32, 64])
def test_sinusoidal_encoding_is_xlms(width):
    """Theirs is rounded to float32."""
    theirs = create_sinusoidal_embeddings(500, width, torch.empty(500, width))
    ours = make_scheme("sinusoidal", width=width, heads=1, base=10000.0).encoding(torch.arange(500))
    close(ours.float(), theirs, atol=1e-7)


@pytest.mark.parametrize("layers", [1, 4, 8, 10, 36])
@pytest.mark.parametrize("config", [SmolLM3Config, Llama4TextConfig])
def test_layers_without_rope_are_those_of_smollm3_and_llama4(config, layers):
    theirs = config(num_hidden_layers=layers).no_rope_layers  # 1 where RoPE is
    schemes = {"rope": {"scheme": "rope", "base": 10000.0, "pairing": "half"}, "none": {"scheme": "none"}}
    cycle = ["rope", "rope", "rope", "none"]
    if layers < 4:  # a schedule refuses a scheme that no layer uses
        cycle, schemes = cycle[:layers], {"rope": schemes["rope"]}
    section = {"scheme": "schedule", "layers": cycle, "schemes": schemes}
    scheme = build_scheme(section, Geometry(64, 4, L, layers))
    assert [scheme.layer(index).name for index in range(layers)] == [
        "rope" if turned else "none" for turned in theirs
    ]


HEADS = pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 8, 12, 16, 20, 40, 71])


@HEADS
def test_alibi_slopes_are_blooms(heads, in_float64):
    theirs = bloom.build_alibi_tensor(torch.ones(1, 5), heads, torch.float64)  # m_h * key position
    close(torch.tensor(slopes(heads)), theirs[:, 0, 1])


@HEADS
def test_alibi_slopes_are_falcons(heads):
    """Theirs are rounded to bfloat16."""
    theirs = falcon.build_alibi_tensor(torch.ones(1, 5), heads, torch.float32)
    close(torch.tensor(slopes(heads)), theirs[:, 0, 1], rtol=2**-8)


@HEADS
def test_alibi_bias_is_mpts(heads):
    """Theirs is -m_h times the distance from the last query, in float32."""
    theirs = mpt.build_mpt_alibi_tensor(heads, LENGTH)[:, 0]
    ours = make_scheme("alibi", heads=heads).bias(torch.arange(LENGTH).flip(0))
    close(ours.float(), theirs, rtol=1e-6)


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


# Whole attentions


def neox_config(fraction):
    return GPTNeoXConfig(
        hidden_size=64,
        num_attention_heads=4,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": fraction},
        attn_implementation="eager",
    )


def t5_pair(buckets, max_distance):
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
        attention.relative_attention_bias.weight.copy_(scheme.table)
    return scheme, attention


def causal_mask(length):
    return torch.full((length, length), -torch.inf).triu(1)[None, None]


def attend(kind, scheme, q, k, v, positions=None, log_gates=None):
    attention = build_attention({"kind": kind}, scheme.geometry, scheme)
    positions = torch.arange(q.shape[-2]) if positions is None else positions
    return attention.attend(q, k, v, Site(scheme, positions, log_gates))


def split(x, heads):
    """(B, T, D) as (B, H, T, K)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge(x):
    return x.transpose(1, 2).flatten(-2)


def sharpen(module):
    """Initial weights make attention nearly uniform; these make it matter."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 2:
                parameter.mul_(2.5)
    return module


def assert_same_attention(ours, theirs, leaves, their_leaves=None, tolerance=1e-10):
    """Outputs, and the gradients of a random function of them."""
    close(ours, theirs, rtol=tolerance, atol=tolerance)
    probe = torch.randn_like(ours)
    our_gradients = torch.autograd.grad((ours * probe).sum(), leaves)
    their_gradients = torch.autograd.grad((theirs * probe).sum(), their_leaves or leaves)
    for our, their in zip(our_gradients, their_gradients, strict=True):
        close(our, their, rtol=10 * tolerance, atol=10 * tolerance)
        assert their.abs().max() > 1e-3


@FUSED
@pytest.mark.parametrize("rope_type", SAME)
def test_attention_is_llamas(rope_type, kind, in_float64):
    config, scheme = SAME[rope_type].config(), SAME[rope_type].scheme()
    module = sharpen(llama.LlamaAttention(config, layer_idx=0))
    hidden = torch.randn(2, LENGTH, 64, requires_grad=True)
    turns = llama.LlamaRotaryEmbedding(config)(hidden, torch.arange(LENGTH)[None])
    theirs, _ = module(hidden, position_embeddings=turns, attention_mask=causal_mask(LENGTH))
    q, k, v = (split(project(hidden), 4) for project in (module.q_proj, module.k_proj, module.v_proj))
    ours = module.o_proj(merge(attend(kind, scheme, q, k, v)))
    assert_same_attention(ours, theirs, [hidden, module.q_proj.weight, module.k_proj.weight])


@FUSED
@pytest.mark.parametrize("fraction", [0.25, 0.5])
def test_attention_is_gpt_neoxs(fraction, kind, in_float64):
    config, scheme = neox_config(fraction), make_rope("rope_partial", fraction=fraction)
    module = sharpen(gpt_neox.GPTNeoXAttention(config, layer_idx=0))
    hidden = torch.randn(2, LENGTH, 64, requires_grad=True)
    turns = gpt_neox.GPTNeoXRotaryEmbedding(config)(hidden, torch.arange(LENGTH)[None])
    theirs, _ = module(hidden, attention_mask=causal_mask(LENGTH), position_embeddings=turns)
    q, k, v = split(module.query_key_value(hidden), 4).chunk(3, dim=-1)
    ours = module.dense(merge(attend(kind, scheme, q, k, v)))
    assert_same_attention(ours, theirs, [hidden, module.query_key_value.weight])


@FUSED
@pytest.mark.parametrize("rotary_dim", [8, 16])
def test_attention_is_gptjs(rotary_dim, kind, in_float64):
    config = GPTJConfig(
        n_embd=64, n_head=4, rotary_dim=rotary_dim, n_positions=LENGTH, attn_pdrop=0.0, resid_pdrop=0.0
    )
    scheme = gptjs_rope(rotary_dim)
    module = sharpen(gptj.GPTJAttention(config, layer_idx=0))
    hidden = torch.randn(2, LENGTH, 64, requires_grad=True)
    theirs, _ = module(
        hidden, attention_mask=causal_mask(LENGTH), position_ids=torch.arange(LENGTH).expand(2, -1)
    )
    q, k, v = (split(project(hidden), 4) for project in (module.q_proj, module.k_proj, module.v_proj))
    ours = module.out_proj(merge(attend(kind, scheme, q, k, v)))
    assert_same_attention(ours, theirs, [hidden, module.q_proj.weight, module.k_proj.weight])


@FUSED
@pytest.mark.parametrize("heads", [4, 6])
def test_attention_under_alibi_is_blooms(heads, kind, in_float64):
    """BLOOM adds m_h times the key's position, which differs by a constant a row."""
    config = BloomConfig(hidden_size=16 * heads, n_head=heads, hidden_dropout=0.0, attention_dropout=0.0)
    module, scheme = sharpen(bloom.BloomAttention(config, layer_idx=0)), make_scheme("alibi", heads=heads)
    hidden = torch.randn(2, LENGTH, 16 * heads, requires_grad=True)
    alibi = bloom.build_alibi_tensor(torch.ones(2, LENGTH), heads, torch.float64)
    theirs, _ = module(hidden, torch.zeros_like(hidden), alibi, causal_mask(LENGTH))
    fused = module.query_key_value(hidden).unflatten(-1, (heads, 3, 16))
    q, k, v = (part.transpose(1, 2) for part in fused.unbind(dim=3))
    ours = module.dense(merge(attend(kind, scheme, q, k, v)))
    assert_same_attention(ours, theirs, [hidden, module.query_key_value.weight])


@FUSED
@pytest.mark.parametrize("heads", [4, 6])
def test_attention_under_alibi_is_mpts(heads, kind, in_float64):
    """Their slopes and softmax are float32's, and a logit of 100 is known to 1e-5 there."""
    config = MptConfig(d_model=16 * heads, n_heads=heads, max_seq_len=LENGTH)
    module, scheme = sharpen(mpt.MptAttention(config, layer_idx=0)), make_scheme("alibi", heads=heads)
    hidden = torch.randn(2, LENGTH, 16 * heads, requires_grad=True)
    bias = mpt.build_mpt_alibi_tensor(heads, LENGTH)
    ahead = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    theirs, _ = module(hidden, bias, attention_mask=ahead)
    q, k, v = (split(part, heads) for part in module.Wqkv(hidden).chunk(3, dim=-1))
    ours = module.out_proj(merge(attend(kind, scheme, q, k, v)))
    assert_same_attention(ours, theirs, [hidden, module.Wqkv.weight], tolerance=2e-5)


@FUSED
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (16, 40)])
def test_attention_under_t5s_bias_is_t5s(buckets, max_distance, kind, in_float64):
    """T5 does not divide by sqrt K. The gradient of the table is compared too."""
    scheme, module = t5_pair(buckets, max_distance)
    hidden = torch.randn(2, LENGTH, 64, requires_grad=True)
    theirs, *_ = module(hidden, mask=causal_mask(LENGTH))
    q, k, v = (split(project(hidden), 4) for project in (module.q, module.k, module.v))
    ours = module.o(merge(attend(kind, scheme, q * 16**0.5, k, v)))
    their_table = module.relative_attention_bias.weight
    assert_same_attention(ours, theirs, [hidden, scheme.table], [hidden, their_table])


# Rescaling after training


FACTORS = pytest.mark.parametrize("factor", [1.5, 4.0, 16.0])
AS_TRAINED = {
    "pi": lambda factor, **options: make_rope("rope_pi", factor=factor, **options),
    "ntk": lambda factor, **options: make_rope("rope_ntk", factor=factor, **options),
    # its factor has no part in it: s is l / L
    "dynamic": lambda factor, **options: make_rope("rope_dynamic", factor=1.0, **options),
    "yarn": lambda factor, **options: make_rope("rope_yarn", factor=factor, original_length=None, **options),
}


@FACTORS
@PAIRINGS
@pytest.mark.parametrize("length", [L // 2, 4 * L])
@pytest.mark.parametrize("method", AS_TRAINED)
def test_a_rescaled_rope_is_the_scheme_of_that_name(method, length, pairing, factor):
    scheme, positions = make_rope(pairing=pairing), torch.arange(length)
    x = torch.randn(2, 4, length, 16, dtype=torch.float64)
    plain = scheme.rotate(x, positions)
    scheme.rescale(Rescaling(method, factor))
    named = AS_TRAINED[method](factor, pairing=pairing)
    assert torch.equal(scheme.frequencies(16, positions), named.frequencies(16, positions))
    assert torch.equal(scheme.logit_features(x), named.logit_features(x))
    rescaled = scheme.rotate(x, positions)
    assert torch.equal(rescaled, named.rotate(x, positions))
    assert torch.equal(rescaled, plain) == (method == "dynamic" and length <= L)
    scheme.rescale(None)
    assert torch.equal(scheme.rotate(x, positions), plain)


@FACTORS
@WIDTHS
@BASES
def test_ntk_is_plain_rope_of_a_larger_base(width, base, factor):
    larger = make_rope(width=width, base=base * factor ** (width / (width - 2)))
    rescaled = make_rope(width=width, base=base)
    rescaled.rescale(Rescaling("ntk", factor))
    expected = larger.frequencies(width, torch.arange(10))
    for scheme in (rescaled, make_rope("rope_ntk", width=width, base=base, factor=factor)):
        close(scheme.frequencies(width, torch.arange(10)), expected, rtol=1e-13)


def test_a_dropped_rope_is_no_scheme():
    q, k = torch.randn(2, 2, 4, 20, 16, dtype=torch.float64)
    scheme = make_rope()
    scheme.rescale(Rescaling("drop", 1.0))
    positions = torch.arange(20)
    plain = scores(make_rope(), q, k, positions)
    dropped = scores(scheme, q, k, positions)
    assert torch.equal(dropped, scores(make_scheme("none"), q, k, positions))
    assert not torch.equal(dropped, plain)


# The papers' formulas, pair by pair


HEADS_HERE, WIDTH_HERE, TOKENS = 3, 8, 11
PLACES = pytest.mark.parametrize("places", ["consecutive", "scattered"])


def scores(scheme, q, k, positions, log_gates=None):
    softmax = build_attention({"kind": "softmax"}, scheme.geometry, scheme)
    return softmax.scores(q, k, Site(scheme, positions, log_gates))


def small(name, **options):
    return make_scheme(name, width=WIDTH_HERE, heads=HEADS_HERE, **options)


def small_rope(name="rope", **options):
    return make_rope(name, width=WIDTH_HERE, heads=HEADS_HERE, **options)


def queries_and_keys(places):
    q, k = torch.randn(2, 2, HEADS_HERE, TOKENS, WIDTH_HERE, dtype=torch.float64)
    positions = torch.arange(TOKENS) if places == "consecutive" else scattered(TOKENS, 3000)
    return q.requires_grad_(), k.requires_grad_(), positions


def pair_by_pair(logit):
    """The scores whose entry (b, h, i, j) is logit(b, h, i, j) for j <= i, and -inf ahead."""
    ahead = torch.tensor(-torch.inf, dtype=torch.float64)
    return torch.stack(
        [
            logit(batch, head, i, j) if j <= i else ahead
            for batch in range(2)
            for head in range(HEADS_HERE)
            for i in range(TOKENS)
            for j in range(TOKENS)
        ]
    ).reshape(2, HEADS_HERE, TOKENS, TOKENS)


def assert_same_scores(ours, expected, leaves, tolerance=1e-10):
    close(ours, expected, rtol=tolerance, atol=tolerance)
    causal = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    probe = torch.randn_like(ours)[..., causal]
    gradients = (torch.autograd.grad((x[..., causal] * probe).sum(), leaves) for x in (ours, expected))
    for our, their in zip(*gradients, strict=True):
        close(our, their, rtol=10 * tolerance, atol=10 * tolerance)
        assert their.abs().max() > 1e-3


def complex_pairs(x, pairing):
    half = x.shape[-1] // 2
    first, second = (x[..., :half], x[..., half:]) if pairing == "half" else (x[..., 0::2], x[..., 1::2])
    return torch.complex(first, second)


def rotary_logit(q, k, positions, pairing, theta, *, warp=float, zeta=None, scale_base=1.0):
    """sum_c Re(q_c conj(k_c) e^(i (f(m) - f(n)) theta_c)) zeta_c^((m - n) / scale_base) / sqrt K."""
    z, w = complex_pairs(q, pairing), complex_pairs(k, pairing)

    def logit(batch, head, i, j):
        m, n = int(positions[i]), int(positions[j])
        phase = torch.tensor([(warp(m) - warp(n)) * turn for turn in theta], dtype=torch.float64)
        products = (z[batch, head, i] * w[batch, head, j].conj() * torch.exp(1j * phase)).real
        if zeta is not None:
            decays = [c ** ((m - n) / scale_base) for c in zeta]
            products = products * torch.tensor(decays, dtype=torch.float64)
        return products.sum() / math.sqrt(WIDTH_HERE)

    return logit


THETA = [10000.0 ** (-2 * c / WIDTH_HERE) for c in range(WIDTH_HERE // 2)]


@PLACES
@PAIRINGS
@pytest.mark.parametrize(
    ("name", "options", "theta", "warp"),
    [
        ("rope", {}, THETA, float),
        ("rope_p", {"fraction": 0.5}, [*THETA[:2], 0.0, 0.0], float),
        ("rope_p", {"fraction": 0.75}, [*THETA[:3], 0.0], float),
        ("rope_pi", {"factor": 4.0}, [turn / 4 for turn in THETA], float),
        ("rope_warped", {"warp": "sqrt"}, THETA, math.sqrt),
        ("rope_warped", {"warp": "log"}, THETA, math.log1p),
    ],
)
def test_rotary_scores_by_the_formula(name, options, theta, warp, pairing, places):
    q, k, positions = queries_and_keys(places)
    ours = scores(small_rope(name, pairing=pairing, **options), q, k, positions)
    assert_same_scores(ours, pair_by_pair(rotary_logit(q, k, positions, pairing, theta, warp=warp)), [q, k])


@PLACES
@PAIRINGS
@pytest.mark.parametrize(("gamma", "scale_base"), [(0.4, 512.0), (1.5, 20.0)])
def test_xpos_scores_by_the_formula(gamma, scale_base, pairing, places):
    q, k, positions = queries_and_keys(places)
    scheme = small_rope("xpos", pairing=pairing, gamma=gamma, scale_base=scale_base)
    zeta = [(2 * c / WIDTH_HERE + gamma) / (1 + gamma) for c in range(WIDTH_HERE // 2)]
    logit = rotary_logit(q, k, positions, pairing, THETA, zeta=zeta, scale_base=scale_base)
    assert_same_scores(scores(scheme, q, k, positions), pair_by_pair(logit), [q, k])


@PLACES
def test_pope_scores_by_the_formula(places):
    q, k, positions = queries_and_keys(places)
    scheme = small("pope", base=10000.0)
    delta = scheme.delta.reshape(HEADS_HERE, WIDTH_HERE)
    theta = torch.tensor([10000.0 ** (-c / WIDTH_HERE) for c in range(WIDTH_HERE)], dtype=torch.float64)

    def logit(batch, head, i, j):
        magnitudes = softplus(q[batch, head, i]) * softplus(k[batch, head, j])
        phase = (positions[i] - positions[j]) * theta + delta[head]
        return (magnitudes * phase.cos()).sum() / math.sqrt(WIDTH_HERE)

    assert_same_scores(scores(scheme, q, k, positions), pair_by_pair(logit), [q, k, scheme.delta])


def fox_gates():
    """FoX's log gates by the scheme, log sigmoid(w_h x_t + b_h) one by one, and what they are made from."""
    scheme = small("fox").layer(0)
    x = torch.randn(2, TOKENS, HEADS_HERE * WIDTH_HERE, dtype=torch.float64, requires_grad=True)
    expected = [
        [
            [logsigmoid(scheme.weight[head] @ x[batch, t] + scheme.offset[head]) for t in range(TOKENS)]
            for head in range(HEADS_HERE)
        ]
        for batch in range(2)
    ]
    return scheme, scheme.log_gates(x), expected, [x, scheme.weight, scheme.offset]


@PLACES
def test_fox_scores_by_the_formula(places):
    q, k, positions = queries_and_keys(places)
    scheme, log_gates, expected, leaves = fox_gates()

    def logit(batch, head, i, j):
        forgotten = sum(expected[batch][head][j + 1 : i + 1], start=torch.zeros((), dtype=torch.float64))
        return q[batch, head, i] @ k[batch, head, j] / math.sqrt(WIDTH_HERE) + forgotten

    assert_same_scores(scores(scheme, q, k, positions, log_gates), pair_by_pair(logit), [q, k, *leaves])


@PLACES
def test_kerple_scores_by_the_formula(places):
    q, k, positions = queries_and_keys(places)
    scheme = small("kerple")
    with torch.no_grad():
        scheme.r1.copy_(torch.tensor([0.7, 1.3, 0.02]))
        scheme.r2.copy_(torch.tensor([0.2, 0.04, 0.9]))

    def logit(batch, head, i, j):
        bias = -scheme.r1[head] * torch.log(1 + scheme.r2[head] * (positions[i] - positions[j]))
        return q[batch, head, i] @ k[batch, head, j] / math.sqrt(WIDTH_HERE) + bias

    assert_same_scores(scores(scheme, q, k, positions), pair_by_pair(logit), [q, k, scheme.r1, scheme.r2])


@PLACES
@pytest.mark.parametrize("threshold", [4 / L, 1.0])
def test_fire_scores_by_the_formula(threshold, places):
    """Ours adds 1e-6 to the denominator, as the authors' code does: some 1e-6 of the quotient."""
    q, k, positions = queries_and_keys(places)
    scheme = small("fire", hidden=7, threshold=threshold)
    with torch.no_grad():
        scheme.c.copy_(torch.tensor([0.3]))
        scheme.threshold.copy_(torch.tensor([1.4]))

    def psi(x):
        return torch.log(1 + scheme.c[0] * x)

    def logit(batch, head, i, j):
        m, n = positions[i].double(), positions[j].double()
        least = scheme.threshold[0] * threshold * L
        quotient = psi(m - n) / psi(m if m > least else least)
        hidden = (scheme.expand.weight[:, 0] * quotient + scheme.expand.bias).relu()
        bias = scheme.project.weight[head] @ hidden + scheme.project.bias[head]
        return q[batch, head, i] @ k[batch, head, j] / math.sqrt(WIDTH_HERE) + bias

    leaves = [q, k, scheme.c, scheme.expand.weight, scheme.expand.bias, scheme.project.weight]
    if places == "consecutive":
        leaves.append(scheme.threshold)
    assert_same_scores(scores(scheme, q, k, positions), pair_by_pair(logit), leaves, tolerance=1e-5)


# Linear attention and Performer


def linear_by_the_formula(q, k, v, product, log_weight):
    """out_i = sum_j w_ij product_ij v_j / sum_j w_ij <phi(q_i), phi(k_j)>; `product` None: the latter."""

    def kernel(batch, head, i, j):
        return (elu(q[batch, head, i]) + 1) @ (elu(k[batch, head, j]) + 1)

    def row(batch, head, i):
        weights = [log_weight(batch, head, i, j).exp() for j in range(i + 1)]
        above = sum(
            weight * (product or kernel)(batch, head, i, j) * v[batch, head, j]
            for j, weight in enumerate(weights)
        )
        return above / sum(weight * kernel(batch, head, i, j) for j, weight in enumerate(weights))

    rows = [row(batch, head, i) for batch in range(2) for head in range(HEADS_HERE) for i in range(TOKENS)]
    return torch.stack(rows).reshape(v.shape)


def nothing(*place):
    return torch.zeros((), dtype=torch.float64)


@pytest.mark.parametrize("name", ["rope", "xpos"])
def test_linear_attention_turns_features_in_the_numerator_alone(name):
    q, k, positions = queries_and_keys("consecutive")
    v = torch.randn_like(q)
    if name == "rope":
        scheme, decay = small_rope(), {}
    else:
        scheme = small_rope("xpos", gamma=0.4, scale_base=20.0)
        zeta = [(2 * c / WIDTH_HERE + 0.4) / 1.4 for c in range(WIDTH_HERE // 2)]
        decay = {"zeta": zeta, "scale_base": 20.0}
    logit = rotary_logit(elu(q) + 1, elu(k) + 1, positions, "half", THETA, **decay)

    def product(*place):
        return logit(*place) * math.sqrt(WIDTH_HERE)

    expected = linear_by_the_formula(q, k, v, product, nothing)
    close(attend("linear", scheme, q, k, v, positions), expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["none", "alibi", "t5"])
def test_linear_attention_multiplies_by_the_exponential_of_a_bias(name):
    q, k, positions = queries_and_keys("consecutive")
    v = torch.randn_like(q)
    scheme = small(name, **({"buckets": 6, "max_distance": 8} if name == "t5" else {}))
    slope = torch.tensor([2**-4, 2**-8, 2**-2], dtype=torch.float64)
    bucket = [0, 1, 2, 3, 3, 4, 5, 5, 5, 5, 5]  # 3 + floor(3 ln(t / 3) / ln(8 / 3)) from t = 3 on
    log_weights = {
        "none": nothing,
        "alibi": lambda batch, head, i, j: -slope[head] * (i - j),
        "t5": lambda batch, head, i, j: scheme.table[bucket[i - j], head],
    }
    expected = linear_by_the_formula(q, k, v, None, log_weights[name])
    close(attend("linear", scheme, q, k, v, positions), expected, rtol=1e-10)


def test_linear_attention_multiplies_by_gates():
    q, k, positions = queries_and_keys("consecutive")
    v = torch.randn_like(q)
    scheme, log_gates, gates, _ = fox_gates()

    def log_weight(batch, head, i, j):
        return sum(gates[batch][head][j + 1 : i + 1], start=nothing())

    expected = linear_by_the_formula(q, k, v, None, log_weight)
    close(attend("linear", scheme, q, k, v, positions, log_gates), expected, rtol=1e-10)


def performer(features, heads=1):
    scheme = small("none") if heads == HEADS_HERE else make_scheme("none", width=WIDTH_HERE, heads=heads)
    section = {"kind": "performer", "features": features}
    attention = build_attention(section, scheme.geometry, scheme).double()
    attention.draw(torch.Generator().manual_seed(0))
    return attention, scheme


BLOCKS = 4000  # of directions, each drawn for itself: as many independent estimates


def test_performers_features_estimate_the_softmax_kernel_without_bias():
    """The mean over all blocks lies within 4.5 of its standard errors, which are below 2 %.

    Ours leaves out 1 / sqrt(features), and a constant for each query and one for all keys, which cancel in
    the quotient: feature 0 of every query and of the first key tells them.
    """
    q, k = torch.randn(2, 6, WIDTH_HERE, dtype=torch.float64) * 0.4
    attention, _ = performer(BLOCKS * WIDTH_HERE)

    def feature_0(x):
        scaled = x * WIDTH_HERE**-0.25
        return (scaled @ attention.omega[0] - scaled.square().sum(dim=-1) / 2).exp()

    phi_q, phi_k = attention.feature_map(q, True), attention.feature_map(k, False)
    phi_q = phi_q * (feature_0(q) / phi_q[:, 0])[:, None]
    phi_k = phi_k * (feature_0(k)[0] / phi_k[0, 0])
    blocks = (phi.unflatten(-1, (BLOCKS, WIDTH_HERE)) for phi in (phi_q, phi_k))
    estimates = torch.einsum("inc,jnc->nij", *blocks) / WIDTH_HERE
    exact = (q @ k.T / math.sqrt(WIDTH_HERE)).exp()
    error = estimates.std(dim=0) / math.sqrt(BLOCKS)
    assert (error < 0.02 * exact).all()
    assert ((estimates.mean(dim=0) - exact).abs() < 4.5 * error).all()
    assert ((exact - 1).abs() > 20 * error).any()


@pytest.mark.parametrize("features", [6, 20, BLOCKS * WIDTH_HERE])
def test_performers_directions_are_orthogonal_in_blocks(features):
    attention, _ = performer(features)
    directions = torch.nn.functional.normalize(attention.omega, dim=-1)
    for block in directions.split(WIDTH_HERE)[-3:]:
        close(block @ block.T, torch.eye(len(block), dtype=torch.float64), atol=1e-12)
    if features > WIDTH_HERE:  # and no block is the one before
        assert 0.1 < (directions[:8] @ directions[8:16].T).abs().max() < 1


def test_performers_directions_are_uniform_and_as_long_as_gaussians():
    """Means within 4.5 standard errors: a direction's entries 0, squared 1/K; a squared length K, variance
    2 K."""
    attention, _ = performer(BLOCKS * WIDTH_HERE)
    squares = attention.omega.square().sum(dim=-1)
    assert abs(squares.mean() - WIDTH_HERE) < 4.5 * math.sqrt(2 * WIDTH_HERE / len(squares))
    assert squares.var() == pytest.approx(2 * WIDTH_HERE, rel=0.1)
    first = (attention.omega / squares.sqrt()[:, None])[::WIDTH_HERE]  # one a block: independent
    for values, expected in ((first, 0.0), (first.square(), 1 / WIDTH_HERE)):
        error = values.std(dim=0) / math.sqrt(BLOCKS)
        assert ((values.mean(dim=0) - expected).abs() < 4.5 * error).all()


def test_performer_with_many_features_is_softmax_attention():
    """Within a tenth of what sets softmax attention apart from the mean of all tokens so far."""
    attention, scheme = performer(16384, heads=HEADS_HERE)
    q, k, positions = queries_and_keys("consecutive")
    q, k, v = q * 0.4, k * 0.4, torch.randn_like(q)
    expected = attend("softmax", scheme, q, k, v)
    mean = v.cumsum(dim=2) / torch.arange(1, TOKENS + 1)[:, None]
    error = attention.attend(q, k, v, Site(scheme, positions)) - expected
    assert error.norm() < 0.1 * (expected - mean).norm()
