"""Schemes of poslab with random parameters, and what the transformers library has of the same kind."""

from dataclasses import dataclass

import torch
from transformers import GPTNeoXConfig, LlamaConfig, T5Config
from transformers import modeling_rope_utils as rope_utils
from transformers.models.bloom import modeling_bloom as bloom
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.t5 import modeling_t5 as t5

from poslab.model.attention import Site, build_attention
from poslab.model.positions import Geometry, build_scheme
from support.models import SCHEMES

L = 64  # the training length
LENGTH = 150  # past L, and more than one strip of flash attention
PAIRINGS = ["half", "interleaved"]


IN_FLOAT32 = (rope_utils, bloom, gpt_neox, gptj, llama)  # modules of theirs that force it


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
    if rope_type == "default":
        return llama.LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    return rope_utils.ROPE_INIT_FUNCTIONS[rope_type](config, seq_len=length)


def scattered(count, below):
    """Ascending positions, as randomised positions are."""
    return torch.randperm(below)[:count].sort().values


def close(ours, theirs, rtol=1e-12, atol=0.0):
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)


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


def gptjs_rope(rotary_dim):
    if rotary_dim == 16:
        return make_rope(pairing="interleaved")
    return make_rope("rope_partial", pairing="interleaved", fraction=rotary_dim / 16)


def site_of(scheme, positions, x):
    return Site(scheme, positions) if x is None else Site.of(scheme, positions, x)


def scores(scheme, q, k, positions, x=None):
    softmax = build_attention({"kind": "softmax"}, scheme.geometry, scheme)
    return softmax.scores(q, k, site_of(scheme, positions, x))


def neox_config(fraction):
    return GPTNeoXConfig(
        hidden_size=64,
        num_attention_heads=4,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": fraction},
        attn_implementation="eager",
    )


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


def attend(kind, scheme, q, k, v, positions=None, x=None):
    attention = build_attention({"kind": kind}, scheme.geometry, scheme)
    positions = torch.arange(q.shape[-2]) if positions is None else positions
    return attention.attend(q, k, v, site_of(scheme, positions, x))
