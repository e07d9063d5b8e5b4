"""Whole attentions against those of the transformers library: outputs and every gradient.

Their code runs in float64 here (fixture `in_float64`), so that the tolerance is of rounding, 1e-10 or less,
and a formula that is off by a little cannot hide in it.

Shapes: B batch, T tokens, H heads, K head width, D model width.
"""

import pytest
import torch
from torch.func import functional_call
from transformers import BloomConfig, GPTJConfig
from transformers.models.bloom import modeling_bloom as bloom
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama

from support.gradients import assert_same_with_gradients
from support.parity import LENGTH, attend, llama_config, make_rope, make_scheme, scattered, t5_pair

pytestmark = pytest.mark.usefixtures("seeded")


FUSED = pytest.mark.parametrize("kind", ["softmax", "flash"])


def causal_mask(length):
    return torch.full((length, length), -torch.inf).triu(1)[None, None]


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


YARN = {"factor": 4.0, "original_max_position_embeddings": 256}
LLAMA3 = {"factor": 8.0, "original_max_position_embeddings": 256}


@FUSED
@pytest.mark.parametrize("below", [LENGTH, 100_000])
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
            {"low_freq_factor": 1.0, "high_freq_factor": 4.0, **LLAMA3},
        ),
        ("rope_p", {"fraction": 0.75}, "proportional", {"partial_rotary_factor": 0.75}),
    ],
)
def test_attention_is_llamas(name, options, rope_type, rope, below, kind, in_float64):
    """Past L, and at scattered positions, where a phase of 1e5 is known to 1e-11."""
    positions = scattered(LENGTH, below)
    config, scheme = llama_config(rope_type, **rope), make_rope(name, **options)
    module = sharpen(llama.LlamaAttention(config, layer_idx=0))
    hidden = torch.randn(2, LENGTH, 64, requires_grad=True)
    turns = llama.LlamaRotaryEmbedding(config)(hidden, positions[None])
    theirs, _ = module(hidden, position_embeddings=turns, attention_mask=causal_mask(LENGTH))
    q, k, v = (split(project(hidden), 4) for project in (module.q_proj, module.k_proj, module.v_proj))
    ours = module.o_proj(merge(attend(kind, scheme, q, k, v, positions)))
    leaves = [hidden, module.q_proj.weight, module.k_proj.weight]
    assert_same_with_gradients(ours, theirs, leaves, tolerance=1e-10 if below == LENGTH else 1e-8)


@FUSED
@pytest.mark.parametrize("rotary_dim", [4, 8])
def test_attention_is_gptjs(rotary_dim, kind, in_float64):
    config = GPTJConfig(
        n_embd=64, n_head=4, rotary_dim=rotary_dim, n_positions=LENGTH, attn_pdrop=0.0, resid_pdrop=0.0
    )
    scheme = make_rope("rope_partial", pairing="interleaved", fraction=rotary_dim / 16)
    module = sharpen(gptj.GPTJAttention(config, layer_idx=0))
    hidden = torch.randn(2, LENGTH, 64, requires_grad=True)
    sines_and_cosines = gptj.GPTJRotaryEmbedding(config)(hidden, torch.arange(LENGTH)[None])
    theirs, _ = module(hidden, sines_and_cosines, causal_mask(LENGTH))
    q, k, v = (split(project(hidden), 4) for project in (module.q_proj, module.k_proj, module.v_proj))
    ours = module.out_proj(merge(attend(kind, scheme, q, k, v)))
    assert_same_with_gradients(ours, theirs, [hidden, module.q_proj.weight, module.k_proj.weight])


@pytest.mark.parametrize(("heads", "kind"), [(1, "flash"), (3, "softmax"), (8, "flash"), (12, "flash")])
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
    assert_same_with_gradients(ours, theirs, [hidden, module.query_key_value.weight])


@FUSED
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (16, 40)])
def test_attention_under_t5s_bias_is_t5s(buckets, max_distance, kind, in_float64):
    """T5 does not divide by sqrt K. The gradient of our table is compared too."""
    scheme, module = t5_pair(buckets, max_distance)
    hidden = torch.randn(2, LENGTH, 64, requires_grad=True)
    table = {"relative_attention_bias.weight": scheme.bucket_bias * 16**0.5}
    theirs, *_ = functional_call(module, table, (hidden,), {"mask": causal_mask(LENGTH)})
    q, k, v = (split(project(hidden), 4) for project in (module.q, module.k, module.v))
    ours = module.o(merge(attend(kind, scheme, q * 16**0.5, k, v)))
    assert_same_with_gradients(ours, theirs, [hidden, scheme.bucket_bias])
