"""Whole models against those of the transformers library, with the same weights, in float64."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM

import poslab
from poslab.library.to_transformers import in_transformers
from poslab.model.gpt import build

SIZES = ["model.layers=4", "model.width=32", "model.heads=4", "context_length=64", "logger=local"]
MODELS = {
    "gpt2": ["pos=learned"],
    "gpt_neox": ["pos=rope", "pos.pairing=interleaved"],
    "llama": ["pos=rope_2k", "model=llama_nano", "model.query_groups=2"],
    "smollm3": ["recipe=as_smollm3"],
    "llama4_text": ["recipe=as_llama4", "pos.schemes.none.start=9"],
    "qwen3": ["pos=rope", "model=llama_nano", "model.qk_norm=true", "model.query_groups=1"],
    "qwen3_next": ["recipe=as_qwen3_next"],
}


@pytest.mark.parametrize(("kind", "attention"), [*((kind, "flash") for kind in MODELS), ("llama", "softmax")])
def test_logits_and_every_gradient_are_those_of_the_library(kind, attention, in_float64):
    """Gradients have the names and the places of their weights, so that they are read as those are."""
    config = poslab.compose(*MODELS[kind], f"attention={attention}", *SIZES).config
    gpt = build(config, 256).double()
    stream = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=stream))
    settings, weights = in_transformers(gpt, config)
    settings = AutoConfig.for_model(**{**settings, "dtype": "float64"})
    theirs = AutoModelForCausalLM.from_config(settings, attn_implementation="eager").eval()
    theirs.load_state_dict(weights, strict=not config.model.tied)  # which they have under two names
    tokens = torch.randint(256, (3, 40), generator=stream)
    logits, expected = gpt(tokens), theirs(tokens).logits
    torch.testing.assert_close(logits, expected, atol=1e-9, rtol=1e-9)
    for output in (logits, expected):
        cross_entropy(output[:, :-1].mT, tokens[:, 1:]).backward()
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.copy_(parameter.grad)
    _, gradients = in_transformers(gpt, config)
    found = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    assert found.keys() == gradients.keys()
    for name, gradient in gradients.items():
        if kind == "qwen3_next" and "norm" in name:
            gradient = gradient + 1  # which is taken off weights of its norms
        torch.testing.assert_close(gradient, found[name], atol=1e-9, rtol=1e-7)
