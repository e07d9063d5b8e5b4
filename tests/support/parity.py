"""Schemes of poslab with random parameters, and what the transformers library has of the same kind."""

import torch
from transformers import LlamaConfig, T5Config
from transformers import modeling_rope_utils as rope_utils
from transformers.models.bloom import modeling_bloom as bloom
from transformers.models.cohere2 import modeling_cohere2 as cohere2
from transformers.models.gemma4 import modeling_gemma4 as gemma4
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox
from transformers.models.gpt_oss import modeling_gpt_oss as gpt_oss
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.inkling import modeling_inkling as inkling
from transformers.models.llama import modeling_llama as llama
from transformers.models.llama4 import modeling_llama4 as llama4
from transformers.models.qwen3 import modeling_qwen3 as qwen3
from transformers.models.qwen3_next import modeling_qwen3_next as qwen3_next
from transformers.models.smollm3 import modeling_smollm3 as smollm3
from transformers.models.t5 import modeling_t5 as t5

from poslab.model.attention import Site, build_attention
from poslab.model.positions import Geometry, build_scheme
from support.models import SCHEMES

L = 64  # the training length
PAIRINGS = ["half", "interleaved"]


# Modules of theirs that force it.
IN_FLOAT32 = (rope_utils, bloom, cohere2, gemma4, gpt_neox, gpt_oss, gptj, inkling, llama, llama4, qwen3)
IN_FLOAT32 += (qwen3_next, smollm3)


class TorchInFloat64:
    """`torch` as their modules see it, where float32 is float64."""

    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def make_scheme(name, *, width=16, heads=4, context_length=L, **options):
    """The scheme of that module, all its parameters drawn at random."""
    geometry = Geometry(width * heads, heads, context_length, 1)
    rate = {"rate": 1.0} if "rate" in SCHEMES.get(name, {}) else {}  # of training alone
    scheme = build_scheme({"scheme": name, **rate, **options}, geometry).double()
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
    return rope_utils.ROPE_INIT_FUNCTIONS[rope_type](config, seq_len=length)


def scattered(count, below):
    """Ascending positions, as randomised positions are."""
    return torch.randperm(below)[:count].sort().values


def close(ours, theirs, rtol=1e-12, atol=0.0):
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)


def scores(scheme, q, k, positions, x=None):
    softmax = build_attention({"kind": "softmax"}, scheme.geometry, scheme)
    site = Site(scheme, positions) if x is None else Site.of(scheme, positions, x)
    return softmax.scores(q, k, site)


def t5_pair(buckets, max_distance):
    """Ours, and T5's attention with the same biases: its table is ours times sqrt K."""
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
