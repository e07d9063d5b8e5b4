"""The parts of a block: against the transformers library's models with the same weights, and by formula."""

import pytest
import torch
from torch.nn.functional import cross_entropy, gelu
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.models.llama import modeling_llama
from transformers.models.qwen3 import modeling_qwen3

from poslab.config.schema import GPT2_BLOCK, BlockOptions, ConfigError, PairError
from poslab.model.attention import Mixer, Site, build_attention
from poslab.model.block import Block
from poslab.model.canon import Canon
from poslab.model.positions import Geometry, build_scheme
from poslab.study.run.budget import size_of
from poslab.study.run.plan import plan, resolve
from support.models import ATTENTIONS, PAIRS, SCHEMES, make_gpt
from support.parity import TorchInFloat64
from support.runs import request

SIZES = {"layers": 2, "width": 32, "heads": 2}
LLAMA = {"norm": "rms", "mlp": "swiglu", "bias": False}
# Every option, changed by itself.
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


def theirs_of(gpt, kind, config):
    """Their model with the weights of ours, and pairs of one's parameters with the rows of the other's."""
    theirs = kind(config).double().eval()
    keys = 8 * config.num_key_value_heads
    pairs = [(theirs.model.embed_tokens.weight, gpt.embedding.weight, slice(None))]
    pairs.append((theirs.model.norm.weight, gpt.norm.weight, slice(None)))
    if gpt.output is not None:
        pairs.append((theirs.lm_head.weight, gpt.output.weight, slice(None)))
    for block, layer in zip(gpt.blocks, theirs.model.layers, strict=True):
        fused, inner = block.attention.query_key_value.weight, block.perceptron.expand.weight
        hidden = len(inner) // 2
        attention = layer.self_attn
        pairs += [
            (attention.q_proj.weight, fused, slice(0, 32)),
            (attention.k_proj.weight, fused, slice(32, 32 + keys)),
            (attention.v_proj.weight, fused, slice(32 + keys, None)),
            (attention.o_proj.weight, block.attention.project_attention.weight, slice(None)),
            (layer.mlp.gate_proj.weight, inner, slice(0, hidden)),
            (layer.mlp.up_proj.weight, inner, slice(hidden, None)),
            (layer.mlp.down_proj.weight, block.perceptron.project_perceptron.weight, slice(None)),
            (layer.input_layernorm.weight, block.norm_attention.weight, slice(None)),
            (layer.post_attention_layernorm.weight, block.norm_perceptron.weight, slice(None)),
        ]
        if block.attention.norm_queries is not None:
            pairs.append((attention.q_norm.weight, block.attention.norm_queries.weight, slice(None)))
            pairs.append((attention.k_norm.weight, block.attention.norm_keys.weight, slice(None)))
    with torch.no_grad():
        for there, mine, rows in pairs:
            if mine.ndim == 1:
                mine.uniform_(0.5, 1.5)
            there.copy_(mine[rows])
    return theirs, pairs


@pytest.mark.parametrize("attention", ["softmax", "flash"])
@pytest.mark.parametrize(
    ("kind", "config", "block"),
    [
        (LlamaForCausalLM, LlamaConfig, {**LLAMA, "query_groups": 2, "tied": False}),
        (LlamaForCausalLM, LlamaConfig, LLAMA),
        (Qwen3ForCausalLM, Qwen3Config, {**LLAMA, "query_groups": 1, "qk_norm": True, "tied": False}),
    ],
    ids=["llama in groups", "llama tied", "qwen3"],
)
def test_equal_to_their_model_in_logits_and_every_gradient(
    kind, config, block, attention, tokens, monkeypatch
):
    for module in (modeling_llama, modeling_qwen3):
        monkeypatch.setattr(module, "torch", TorchInFloat64())
    gpt = make_gpt(SCHEMES["rope"], ATTENTIONS[attention], **block)
    theirs, pairs = theirs_of(
        gpt,
        kind,
        config(
            vocab_size=50,
            hidden_size=32,
            intermediate_size=gpt.blocks[0].perceptron.project_perceptron.in_features,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=block.get("query_groups", 4),
            head_dim=8,
            max_position_embeddings=64,
            rms_norm_eps=1e-6,
            tie_word_embeddings=block.get("tied", True),
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            attn_implementation="eager",
        ),
    )
    logits, other = gpt(tokens), theirs(tokens).logits
    torch.testing.assert_close(logits, other, atol=1e-9, rtol=1e-9)
    for output in (logits, other):
        cross_entropy(output[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    for there, mine, rows in pairs:
        torch.testing.assert_close(mine.grad[rows], there.grad, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("attention", sorted({attention for _, attention in PAIRS}))
def test_query_groups_are_heads_with_the_same_keys_and_values(attention, tokens):
    gpt = make_gpt(SCHEMES["none"], ATTENTIONS[attention], query_groups=2, layers=1)
    whole = make_gpt(SCHEMES["none"], ATTENTIONS[attention], layers=1)
    weights = gpt.state_dict()
    for name in ("weight", "bias"):
        key = f"blocks.0.attention.query_key_value.{name}"
        q, k, v = weights[key].split([32, 16, 16])
        repeated = [part.unflatten(0, (2, 8)).repeat_interleave(2, dim=0).flatten(0, 1) for part in (k, v)]
        weights[key] = torch.cat([q, *repeated])
    whole.load_state_dict(weights)
    torch.testing.assert_close(gpt(tokens), whole(tokens), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("change", CHANGES, ids=NAMES)
def test_an_option_changes_the_model_and_leaves_it_causal(change, tokens):
    assert list(change) == [NAMES[CHANGES.index(change)]]
    assert set(NAMES) == set(BlockOptions.model_fields)
    gpt, other = (make_gpt(SCHEMES["rope"], ATTENTIONS["flash"], **block) for block in ({}, change))
    with torch.no_grad():
        for parameter in (*gpt.parameters(), *other.parameters()):
            if parameter.ndim == 1:  # biases begin at 0
                parameter.add_(torch.linspace(-0.1, 0.1, len(parameter)))
    assert not torch.allclose(gpt(tokens), other(tokens))
    later = tokens.clone()
    later[:, 20:] = (later[:, 20:] + 1) % 50
    torch.testing.assert_close(other(tokens)[:, :20], other(later)[:, :20], atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(other(tokens, 3), other(tokens)[:, -3:], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(
    "change", [*CHANGES, {**LLAMA, "qk_norm": True, "query_groups": 1, "canon": ["b", "d"]}]
)
def test_the_foreseen_size_is_nearly_that_of_the_matrices(change):
    config = resolve(request(model={**SIZES, **change}).config)
    gpt = make_gpt(config.pos, config.attention, context_length=32, vocabulary=256, **SIZES, **change)
    matrices = sum(parameter.numel() for parameter in gpt.parameters() if parameter.ndim >= 2)
    assert 0.85 * 16 * matrices < size_of(config).disk < 1.03 * 16 * matrices


def test_flops_count_the_output_matrix_and_not_an_embedding_that_only_looks_up():
    tied = make_gpt(SCHEMES["none"], ATTENTIONS["flash"])
    untied = make_gpt(SCHEMES["none"], ATTENTIONS["flash"], tied=False)
    assert untied.parameter_count() == tied.parameter_count() + 50 * 32
    assert untied.training_flops(10) == tied.training_flops(10)


class Bare(Mixer):
    """A mixer that has no queries."""

    def forward(self, x, site):
        return x


@pytest.mark.parametrize(
    "change", [{"query_groups": 1}, {"qk_norm": True}, {"output_gate": True}, {"canon": ["b"]}]
)
def test_what_is_for_queries_is_refused_without_them(change):
    geometry = Geometry(32, 4, 64, 1)
    mixer = Bare(None, geometry, make_gpt(SCHEMES["none"], ATTENTIONS["softmax"]).scheme)
    Block(geometry, mixer, GPT2_BLOCK)
    with pytest.raises(PairError, match="is no attention"):
        Block(geometry, mixer, BlockOptions(**change))


def test_normalised_queries_and_keys_have_the_dtype_of_the_values():
    """The autocast of CUDA computes an RMSNorm in float32, which that of a CPU does not."""
    gpt = make_gpt(SCHEMES["rope"], ATTENTIONS["flash"], qk_norm=True).bfloat16()
    attention = gpt.blocks[0].attention
    for norm in (attention.norm_queries, attention.norm_keys):
        norm.register_forward_hook(lambda module, given, found: found.float())
    x = torch.zeros(1, 8, 32, dtype=torch.bfloat16)
    *projected, _ = attention.projected(x, Site(gpt.scheme.layer(0), torch.arange(8)))
    assert {part.dtype for part in projected} == {torch.bfloat16}


@pytest.mark.parametrize("change", [{}, {"mlp": "swiglu", "query_groups": 2, "qk_norm": True}])
@pytest.mark.parametrize("letter", "abcd")
def test_a_canon_layer_is_a_depthwise_convolution_added_to_its_input(letter, change, tokens):
    """Beside the block without it, with PyTorch's convolution hooked in where the paper has it."""
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


@pytest.mark.parametrize(
    ("canon", "attention"), [("c", "softmax"), ("d", "flash"), ("abcd", "flash"), ("abcd", "linear")]
)
def test_the_last_tokens_are_those_of_the_whole_also_after_convolutions(canon, attention, tokens):
    gpt = make_gpt(SCHEMES["rope"], ATTENTIONS[attention], canon=list(canon))
    for last in (1, 3, 15, 36, 40):
        torch.testing.assert_close(gpt(tokens, last), gpt(tokens)[:, -last:], atol=1e-10, rtol=1e-10)


def test_canon_kernels_are_drawn_as_pytorchs_and_leave_the_other_weights_as_they_were():
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


def test_canon_layers_are_refused_where_tokens_see_later_ones():
    geometry = Geometry(32, 4, 64, 1, causal=False)
    scheme = build_scheme(SCHEMES["none"], geometry)
    with pytest.raises(PairError, match="objective=causal"):
        Block(geometry, build_attention(ATTENTIONS["flash"], geometry, scheme), BlockOptions(canon=["a"]))


@pytest.mark.parametrize(("option", "value"), [("canon", ["a", "a"]), ("query_groups", 3)])
def test_letters_are_named_once_and_groups_divide_the_heads(option, value):
    with pytest.raises(ConfigError, match=option):
        request(model={**SIZES, option: value})


def test_letters_are_named_in_any_order():
    wanted, other = (request(model={**SIZES, "canon": canon}) for canon in (["c", "a"], ["a", "c"]))
    assert wanted.config == other.config


def test_a_run_with_gpt2s_block_has_the_record_that_it_had_before(tmp_path):
    job = plan(request(model={**SIZES, **GPT2_BLOCK.model_dump()}), tmp_path)
    assert job.facts["config"]["model"] == SIZES
    changed = plan(request(model={**SIZES, "norm": "rms"}), tmp_path)
    assert changed.facts["config"]["model"] == {**SIZES, "norm": "rms"}
    assert changed.identity != job.identity
