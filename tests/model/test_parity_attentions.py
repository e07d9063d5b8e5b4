"""Whole attentions against those of the transformers library: outputs and every gradient.

Their code runs in float64 here (fixture `in_float64`), so that the tolerance is of rounding, 1e-10 or less,
and a formula that is off by a little cannot hide in it.

Shapes: B batch, T tokens, H heads, K head width, D model width.
"""

import pytest
import torch
from torch.func import functional_call
from transformers import BloomConfig, GPTJConfig, MptConfig
from transformers.models.bloom import modeling_bloom as bloom
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.mpt import modeling_mpt as mpt

from support.formulas import assert_same_with_gradients
from support.parity import (
    LENGTH,
    SAME,
    attend,
    gptjs_rope,
    make_rope,
    make_scheme,
    neox_config,
    t5_pair,
)

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
    assert_same_with_gradients(ours, theirs, [hidden, module.q_proj.weight, module.k_proj.weight])


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
    assert_same_with_gradients(ours, theirs, [hidden, module.query_key_value.weight])


@FUSED
@pytest.mark.parametrize("rotary_dim", [8, 16])
def test_attention_is_gptjs(rotary_dim, kind, in_float64):
    config = GPTJConfig(
        n_embd=64, n_head=4, rotary_dim=rotary_dim, n_positions=LENGTH, attn_pdrop=0.0, resid_pdrop=0.0
    )
    scheme = gptjs_rope(rotary_dim)
    module = sharpen(gptj.GPTJAttention(config, layer_idx=0))
    hidden = torch.randn(2, LENGTH, 64, requires_grad=True)
    sines_and_cosines = gptj.GPTJRotaryEmbedding(config)(hidden, torch.arange(LENGTH)[None])
    theirs, _ = module(hidden, sines_and_cosines, causal_mask(LENGTH))
    q, k, v = (split(project(hidden), 4) for project in (module.q_proj, module.k_proj, module.v_proj))
    ours = module.out_proj(merge(attend(kind, scheme, q, k, v)))
    assert_same_with_gradients(ours, theirs, [hidden, module.q_proj.weight, module.k_proj.weight])


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
    assert_same_with_gradients(ours, theirs, [hidden, module.query_key_value.weight])


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
    assert_same_with_gradients(ours, theirs, [hidden, module.Wqkv.weight], tolerance=2e-5)


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
