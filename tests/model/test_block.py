"""The parts of a block. Blocks of published models: library/test_to_transformers.py."""

import pytest
import torch
from torch.nn.functional import cross_entropy, gelu

from poslab.config.schema import BlockOptions
from poslab.model.attention import Site
from poslab.model.canon import Canon
from poslab.study.run.budget import size_of
from poslab.study.run.plan import resolve
from support.models import ATTENTIONS, SCHEMES, make_gpt
from support.runs import request

SIZES = {"layers": 2, "width": 32, "heads": 2}
LLAMA = {"norm": "rms", "mlp": "swiglu", "bias": False}
# Every option, changed one at a time.
CHANGES = [
    {"norm": "rms"},
    {"mlp": "swiglu"},
    {"query_groups": 2},
    {"qk_norm": True},
    {"output_gate": True},
    {"sinks": True},
    {"canon": ["a", "b", "c", "d"]},
    {"bias": False},
    {"tied": False},
]
NAMES = [next(iter(change)) for change in CHANGES]


@pytest.fixture
def tokens():
    return torch.randint(0, 50, (3, 40), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("change", CHANGES, ids=NAMES)
def test_an_option_changes_the_model_which_stays_causal(change, tokens):
    assert set(NAMES) == set(BlockOptions.model_fields)
    gpt, other = (make_gpt(SCHEMES["rope"], ATTENTIONS["flash"], layers=2, **block) for block in ({}, change))
    with torch.no_grad():
        for parameter in (*gpt.parameters(), *other.parameters()):
            if parameter.ndim == 1:  # biases begin at 0
                parameter.add_(torch.linspace(-0.1, 0.1, len(parameter)))
    assert not torch.allclose(gpt(tokens), other(tokens))
    later = tokens.clone()
    later[:, 20:] = (later[:, 20:] + 1) % 50
    torch.testing.assert_close(other(tokens)[:, :20], other(later)[:, :20], atol=1e-10, rtol=1e-10)
    for last in (1, 3, 15, 36, 40):
        torch.testing.assert_close(other(tokens, last), other(tokens)[:, -last:], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(
    "change", [*CHANGES, {**LLAMA, "qk_norm": True, "query_groups": 1, "canon": ["b", "d"]}]
)
def test_the_estimated_size_is_nearly_that_of_the_matrices(change):
    config = resolve(request(model={**SIZES, **change}, trainer__batch_size=512).config)
    gpt = make_gpt(config.pos, config.attention, context_length=32, vocabulary=256, **SIZES, **change)
    matrices = sum(parameter.numel() for parameter in gpt.parameters() if parameter.ndim >= 2)
    state = size_of(config).needs[0]  # of training, which takes more memory here than an evaluation
    assert 0.85 * 16 * matrices < state.bytes < 1.03 * 16 * matrices


def test_flops_include_the_output_matrix_but_no_untied_embedding():
    tied = make_gpt(SCHEMES["none"], ATTENTIONS["flash"])
    untied = make_gpt(SCHEMES["none"], ATTENTIONS["flash"], tied=False)
    assert untied.parameter_count() == tied.parameter_count() + 50 * 32
    assert untied.training_flops(10) == tied.training_flops(10)


def test_normalised_queries_and_keys_have_the_dtype_of_the_values():
    """CUDA's autocast computes an RMSNorm in float32; a CPU's does not."""
    gpt = make_gpt(SCHEMES["rope"], ATTENTIONS["flash"], qk_norm=True).bfloat16()
    attention = gpt.blocks[0].attention
    for norm in (attention.norm_queries, attention.norm_keys):
        norm.register_forward_hook(lambda module, arguments, found: found.float())
    x = torch.zeros(1, 8, 32, dtype=torch.bfloat16)
    *projected, _ = attention.projected(x, Site(gpt.scheme.layer(0), torch.arange(8)))
    assert {part.dtype for part in projected} == {torch.bfloat16}


@pytest.mark.parametrize("change", [{}, {"mlp": "swiglu", "query_groups": 2, "qk_norm": True}])
@pytest.mark.parametrize("letter", "abcd")
def test_a_canon_layer_is_a_depthwise_convolution_added_to_its_input(letter, change, tokens):
    """Compared with the block without it and PyTorch's convolution hooked in where the paper has it."""
    gpt = make_gpt(SCHEMES["rope"], ATTENTIONS["flash"], layers=1, canon=[letter], **change)
    plain = make_gpt(SCHEMES["rope"], ATTENTIONS["flash"], layers=1, **change)
    plain.load_state_dict(gpt.state_dict(), strict=False)
    block, other = gpt.blocks[0], plain.blocks[0]
    (canon,) = (module for module in block.modules() if isinstance(module, Canon))
    channels = len(canon.weight)
    convolution = torch.nn.Conv1d(channels, channels, 4, padding=3, groups=channels, bias=False).double()
    with torch.no_grad():
        convolution.weight.copy_(canon.weight)

    def convolved(x):
        return x + convolution(x.mT)[..., : x.shape[1]].mT

    if letter == "d" and not change:  # its layer and its activation are one module
        other.perceptron.expand.register_forward_hook(
            lambda layer, inputs, output: gelu(
                convolved(torch.nn.functional.linear(inputs[0], layer.weight, layer.bias)),
                approximate="tanh",
            )
        )
    else:
        places = {
            "a": other.norm_attention,
            "b": other.attention.query_key_value,
            "c": other.norm_perceptron,
            "d": other.perceptron.expand,
        }
        places[letter].register_forward_hook(lambda module, inputs, output: convolved(output))
    logits, expected = gpt(tokens), plain(tokens)
    torch.testing.assert_close(logits, expected, atol=1e-10, rtol=1e-10)
    for output in (logits, expected):
        cross_entropy(output[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    torch.testing.assert_close(canon.weight.grad, convolution.weight.grad, atol=1e-10, rtol=1e-8)
    theirs = dict(plain.named_parameters())
    for name, parameter in gpt.named_parameters():
        if name in theirs:
            torch.testing.assert_close(parameter.grad, theirs[name].grad, atol=1e-10, rtol=1e-8)


def test_canon_kernels_are_drawn_as_in_pytorch_and_change_no_other_weights():
    sizes = {**SIZES, "width": 64}
    plain, gpt = (
        make_gpt(SCHEMES["rope"], ATTENTIONS["flash"], **sizes, canon=canon) for canon in ([], ["a", "d"])
    )
    weights = gpt.state_dict()
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, weights.pop(name))
    drawn = torch.cat([tensor.flatten() for tensor in weights.values()]) / 8  # see make_gpt
    assert len(drawn) == gpt.parameter_count() - plain.parameter_count() == 2 * 4 * (64 + 256)
    assert drawn.abs().max() < 0.5
    assert drawn.std() == pytest.approx(12**-0.5, rel=0.05)


def test_letters_may_have_any_order():
    wanted, other = (request(model={**SIZES, "canon": canon}) for canon in (["c", "a"], ["a", "c"]))
    assert wanted.config == other.config
