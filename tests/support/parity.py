"""Schemes of poslab with random parameters, and their counterparts in the transformers library."""

import torch
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

from poslab.model.attention import Site, build_attention
from poslab.model.positions import Geometry, build_scheme
from support.models import SCHEMES

L = 64  # the training length
PAIRINGS = ["half", "interleaved"]


# Their modules that force float32.
IN_FLOAT32 = (rope_utils, bloom, cohere2, gemma4, gpt_neox, gpt_oss, gptj, inkling, llama, llama4, qwen3)
IN_FLOAT32 += (qwen3_next, smollm3)


class TorchInFloat64:
    """`torch` for their modules, with float64 as float32."""

    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def make_scheme(name, *, width=16, heads=4, context_length=L, **options):
    """Build the scheme of that module with random parameters."""
    geometry = Geometry(width * heads, heads, context_length, 1)
    rate = {"rate": 1.0} if "rate" in SCHEMES.get(name, {}) else {}  # used in training only
    scheme = build_scheme({"scheme": name, **rate, **options}, geometry).double()
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.normal_()
    return scheme


def scattered(count, below):
    """Return ascending positions, like randomised ones."""
    return torch.randperm(below)[:count].sort().values


def close(ours, theirs, rtol=1e-12, atol=0.0):
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)


def scores(scheme, q, k, positions, x=None):
    softmax = build_attention({"kind": "softmax"}, scheme.geometry, scheme)
    site = Site(scheme, positions) if x is None else Site.of(scheme, positions, x)
    return softmax.scores(q, k, site)
