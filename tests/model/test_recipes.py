"""The layers of published models, built by recipes, compared with the transformers library.

The whole models of SmolLM3, Llama 4 and Qwen3-Next are compared in library/test_to_transformers.py.
"""

from functools import partial

import pytest
import torch
from transformers import (
    Cohere2Config,
    Gemma4TextConfig,
    GptOssConfig,
    Llama4TextConfig,
    SmolLM3Config,
)
from transformers.models.cohere2 import modeling_cohere2
from transformers.models.gemma4 import modeling_gemma4
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.inkling import modeling_inkling
from transformers.models.inkling.configuration_inkling import InklingTextConfig

import poslab
from poslab.config.schema import BlockOptions
from poslab.model.attention import Site, build_attention
from poslab.model.gpt import build
from poslab.model.positions import Geometry, build_scheme
from support.models import ATTENTIONS, CONF, POSITIONS

HEADS, KEYS, WIDTH, TOKENS = 4, 2, 8, 40
NEAR, FAR = 0, 3  # layers of the recipes
RECIPES = sorted(path.stem for path in (CONF / "recipe").glob("*.yaml"))


def ours(recipe, attention, layer, **block):
    """Return the attention of a layer with random weights and its scheme, with windows of 5 tokens."""
    section, small = POSITIONS[recipe], {"window": 5, "start": 7}
    if section["scheme"] == "schedule":
        schemes = {
            name: {key: small.get(key, value) for key, value in entry.items()}
            for name, entry in section["schemes"].items()
        }
        section = section | {"schemes": schemes}
    geometry = Geometry(HEADS * WIDTH, HEADS, 64, layers=4)
    whole = build_scheme(section, geometry).double()
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter.normal_()
    scheme = whole.layer(layer)
    built = build_attention(ATTENTIONS[attention], geometry, scheme)
    built.add_projections(BlockOptions(query_groups=KEYS, bias=False, **block))
    built.double()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.normal_()
    return built, scheme


def theirs(kind, config, layer, built):
    """Return their attention with the weights of ours."""
    module = kind(config, layer).double()
    q, k, v = built.query_key_value.weight.split([HEADS * WIDTH, *2 * [KEYS * WIDTH]])
    with torch.no_grad():
        module.q_proj.weight.copy_(q)
        module.k_proj.weight.copy_(k)
        module.v_proj.weight.copy_(v)
        module.o_proj.weight.copy_(built.project_attention.weight)
    return module


def config_of(kind, **options):
    config = kind(
        hidden_size=HEADS * WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=KEYS,
        head_dim=WIDTH,
        num_hidden_layers=4,
        rms_norm_eps=1e-6,
        **options,
    )
    config._attn_implementation = "eager"
    return config


def mask(window=None):
    distance = torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)
    hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
    return torch.zeros(TOKENS, TOKENS, dtype=torch.float64).masked_fill(hidden, -torch.inf)[None, None]


def cohere2(layer):
    types = 3 * ["sliding_attention"] + ["full_attention"]
    config = config_of(Cohere2Config, layer_types=types, sliding_window=5)
    theta = 50000.0 ** (-torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    phases = (torch.arange(TOKENS)[:, None] * theta).repeat_interleave(2, dim=-1)[None]
    arguments = (phases.cos(), phases.sin()), mask(5 if layer == NEAR else None)
    return partial(theirs, modeling_cohere2.Cohere2Attention, config, layer), arguments


def gpt_oss(layer):
    types = 2 * ["sliding_attention", "full_attention"]
    yarn = {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0}
    yarn |= {"original_max_position_embeddings": 64, "truncate": True}  # no rounding in gpt-oss
    config = config_of(GptOssConfig, layer_types=types, sliding_window=5, rope_parameters=yarn)
    rotary = modeling_gpt_oss.GptOssRotaryEmbedding(config)
    turned = rotary(torch.zeros(1, dtype=torch.float64), torch.arange(TOKENS)[None])

    def with_sinks(built):
        module = theirs(modeling_gpt_oss.GptOssAttention, config, layer, built)
        with torch.no_grad():
            module.sinks.copy_(built.sinks)
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                getattr(module, name).bias.zero_()
        return module

    return with_sinks, (turned, mask(5 if layer == NEAR else None))


def inkling(layer):
    """Without their convolutions of keys and values; they divide by K, which the norm compensates here."""
    sizes = {"swa_num_attention_heads": HEADS, "swa_num_key_value_heads": KEYS, "swa_head_dim": WIDTH}
    logits = {"d_rel": 16, "rel_extent": 32, "log_scaling_n_floor": 7, "sliding_window_size": 5}
    types = 3 * ["hybrid_sliding"] + ["hybrid"]
    config = config_of(InklingTextConfig, layer_types=types, **sizes, **logits)

    def with_norms(built):
        module = theirs(modeling_inkling.InklingAttention, config, layer, built)
        with torch.no_grad():
            module.q_norm.weight.copy_(built.norm_queries.weight * WIDTH**0.5)
            module.k_norm.weight.copy_(built.norm_keys.weight)
            module.k_sconv.conv1d.weight.zero_()
            module.v_sconv.conv1d.weight.zero_()
        return module

    return with_norms, (mask(5 if layer == NEAR else None),)


def gemma4(layer):
    """They normalise values, as `norm_values` makes ours do, and do not divide logits."""
    types = 3 * ["sliding_attention"] + ["full_attention"]
    config = config_of(Gemma4TextConfig, layer_types=types, sliding_window=5, global_head_dim=WIDTH)
    rotary = modeling_gemma4.Gemma4TextRotaryEmbedding(config)
    places = torch.arange(TOKENS)[None]
    turned = rotary(torch.zeros(1, dtype=torch.float64), places, layer_type=types[layer])

    def with_norms(built):
        module = theirs(modeling_gemma4.Gemma4TextAttention, config, layer, built)
        with torch.no_grad():
            module.q_norm.weight.copy_(built.norm_queries.weight / WIDTH**0.5)
            module.k_norm.weight.copy_(built.norm_keys.weight)
        return module

    return with_norms, (turned, mask(5 if layer == NEAR else None), {})


def norm_values(built):
    """Make our attention normalise its values, for which a block has no setting."""
    project = built.projected

    def projected(x, site):
        q, k, v, read = project(x, site)
        return q, k, v / (v.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt(), read

    built.projected = projected


def inklings_bias(scheme, module):
    """Copy our weights of the bias to theirs; return both."""
    inside = scheme.inside if hasattr(scheme, "inside") else scheme
    mine, other = [inside.read, inside.profiles], [module.r_proj.weight, module.rel_logits_proj.proj]
    with torch.no_grad():
        for ours_, theirs_ in zip(mine, other, strict=True):
            theirs_.copy_(ours_)
    return mine, other


LAYERS = {
    "as_command_a": (cohere2, {}),
    "as_gemma4": (gemma4, {"qk_norm": True}),
    "as_gpt_oss": (gpt_oss, {"sinks": True}),
    "as_inkling": (inkling, {"qk_norm": True}),
}


@pytest.mark.parametrize(("attention", "layer"), [("flash", NEAR), ("flash", FAR), ("softmax", NEAR)])
@pytest.mark.parametrize("recipe", LAYERS)
def test_a_layer_equals_that_of_the_model(recipe, attention, layer, in_float64):
    """The output, and the gradients of the input and of every weight."""
    make, block = LAYERS[recipe]
    built, scheme = ours(recipe, attention, layer, **block)
    make_theirs, arguments = make(layer)
    module = make_theirs(built)
    if recipe == "as_gemma4":
        norm_values(built)
    bias = inklings_bias(scheme, module) if recipe == "as_inkling" else ([], [])
    if recipe == "as_gpt_oss":
        bias = [built.sinks], [module.sinks]
    x = torch.randn(2, TOKENS, HEADS * WIDTH, dtype=torch.float64, requires_grad=True)
    mine = built(x, Site(scheme, torch.arange(TOKENS)))
    other = module(x, *arguments)[0]
    torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)
    upstream = torch.randn_like(mine)
    projections = [module.q_proj.weight, module.k_proj.weight, module.v_proj.weight]
    *of_mine, fused = torch.autograd.grad(
        mine, [x, built.project_attention.weight, *bias[0], built.query_key_value.weight], upstream
    )
    of_theirs = torch.autograd.grad(other, [x, module.o_proj.weight, *bias[1], *projections], upstream)
    torch.testing.assert_close(of_mine, list(of_theirs[:-3]), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(fused, torch.cat(of_theirs[-3:]), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("pos", "config"), [("as_smollm3", SmolLM3Config), ("as_llama4", Llama4TextConfig)])
def test_layers_without_rope_equal_those_of_the_model(pos, config):
    scheme = build_scheme(POSITIONS[pos], Geometry(64, 4, 64, layers=36))
    turned = [scheme.layer(index).name == "rope" for index in range(36)]
    assert turned == [bool(rope) for rope in config(num_hidden_layers=36).no_rope_layers]


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_builds_a_model(recipe):
    config = poslab.compose(f"recipe={recipe}").config
    gpt = build(config, 256)
    gpt.initialise(0)
    assert torch.isfinite(gpt(torch.arange(200)[None])).all()
