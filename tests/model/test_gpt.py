"""The GPT: sizes, initial weights, older checkpoints. Published models: library/test_to_transformers.py."""

import copy
from functools import partial

import pytest
import torch
import yaml

from poslab.model.attention import build_attention
from poslab.model.gpt import GPT, drawn_as
from poslab.model.positions import Geometry, build_scheme
from support.models import ATTENTIONS, BY_TURNS, CONF, SCHEMES, make_gpt


def of_size(name: str, vocabulary: int, pos: str = "rope") -> GPT:
    size = yaml.safe_load((CONF / "model" / f"{name}.yaml").read_text())["model"]
    geometry = Geometry(size["width"], size["heads"], 1024, size["layers"])
    with torch.device("meta"):
        scheme = build_scheme(SCHEMES[pos], geometry)
        attentions = [build_attention(ATTENTIONS["softmax"], geometry, scheme) for _ in range(size["layers"])]
        return GPT(vocabulary, geometry, scheme, attentions)


def test_sizes_have_the_documented_number_of_parameters():
    assert of_size("nano", 256).parameter_count() == pytest.approx(0.8e6, rel=0.05)
    assert of_size("micro", 256).parameter_count() == pytest.approx(10.7e6, rel=0.01)
    # GPT-2's smallest, with its learned positions, exactly
    assert of_size("small", 50_257, pos="learned").parameter_count() == 124_439_808


def test_initial_weights_do_not_depend_on_scheme_and_attention():
    reference = dict(make_gpt(SCHEMES["none"], ATTENTIONS["softmax"]).named_parameters())
    for pos, attention in [*BY_TURNS, ("rope", "gated_delta")]:
        for name, parameter in make_gpt(SCHEMES[pos], ATTENTIONS[attention]).named_parameters():
            own = attention == "gated_delta" and ".attention." in name
            if not name.startswith("scheme.") and not own:
                assert torch.equal(parameter, reference[name]), name


def test_initial_weights_depend_only_on_the_seed_and_all_differ():
    def weights(state, seed=0):
        torch.manual_seed(state)
        return make_gpt(SCHEMES["fox"], ATTENTIONS["flash"], seed=seed, output_gate=True).state_dict()

    one, again, other = weights(0), weights(1), weights(0, seed=1)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in one if one[name].ndim >= 2)
    assert not torch.equal(*(one[f"blocks.{layer}.perceptron.expand.weight"] for layer in (0, 1)))
    assert not one["blocks.0.attention.gate_attention.bias"].any()


def test_initial_weights_have_gpt2s_deviations():
    gpt = make_gpt(SCHEMES["rope"], ATTENTIONS["softmax"], width=256, layers=8)
    deviations = {
        name: parameter.std().item() / 8 for name, parameter in gpt.named_parameters() if parameter.ndim > 1
    }
    assert deviations["embedding.weight"] == pytest.approx(0.02, rel=0.05)
    assert deviations["blocks.3.attention.query_key_value.weight"] == pytest.approx(0.02, rel=0.05)
    assert deviations["blocks.3.attention.project_attention.weight"] == pytest.approx(0.02 / 4, rel=0.05)


def test_lengths_past_a_schemes_table_and_unknown_reductions_are_refused():
    gpt = make_gpt(SCHEMES["learned"], ATTENTIONS["softmax"], context_length=16)
    with pytest.raises(ValueError, match="defined up to 16"):
        gpt(torch.zeros(1, 17, dtype=torch.long))
    tokens = torch.zeros(1, 4, dtype=torch.long)
    with pytest.raises(ValueError, match="neither mean nor none"):
        gpt(tokens, targets=tokens, reduction="sum")


def test_flops_are_six_per_parameter_and_token_plus_attention():
    gpt = of_size("small", 50_257)
    embedded = 50_257 * 768
    matrices = embedded + 12 * 12 * 768 * 768
    assert gpt.training_flops(10) == 10 * (6 * matrices + 12 * 12 * 768 * 1024)


def test_weights_of_older_checkpoints_load_by_their_names():
    gpt, other = (make_gpt(SCHEMES["fire"], ATTENTIONS["flash"], seed=seed) for seed in (0, 1))
    older = {drawn_as(name): tensor for name, tensor in gpt.state_dict().items()}
    assert {
        "scheme.expand.weight",
        "blocks.0.query_key_value.weight",
        "blocks.0.project_attention.bias",
        "blocks.3.expand.weight",
        "blocks.3.project_perceptron.weight",
    } <= older.keys()
    for weights in (older, gpt.state_dict()):
        other.load_state_dict(weights)
        assert all(map(torch.equal, other.parameters(), gpt.parameters()))
        other.initialise(2)
    inside = torch.nn.ModuleDict({"gpt": other})
    inside.load_state_dict({f"gpt.{name}": tensor for name, tensor in older.items()})
    assert all(map(torch.equal, other.parameters(), gpt.parameters()))
    del older["blocks.3.expand.weight"]
    with pytest.raises(RuntimeError, match=r"Missing key.*blocks.3.perceptron.expand.weight"):
        other.load_state_dict(older)


def test_parameters_have_the_order_of_optimizer_states():
    gpt = make_gpt(SCHEMES["learned"], ATTENTIONS["performer"], layers=1)
    names = [drawn_as(name).removesuffix(".weight") for name, _ in gpt.named_parameters()]
    layers = ["norm_attention", "query_key_value", "project_attention", "norm_perceptron"]
    layers += ["expand", "project_perceptron"]
    assert [name for name in names if not name.endswith("bias")] == [
        "scheme.table",
        "embedding",
        *(f"blocks.0.{name}" for name in layers),
        "norm",
    ]


def test_compiled_blocks_run_in_training_only(monkeypatch):
    """With a backend that runs PyTorch's own operators, which only counts the compiled graphs."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    gpt = make_gpt(SCHEMES["rope"], ATTENTIONS["flash"], dtype=torch.float32)
    tokens = torch.randint(0, 50, (2, 24), generator=torch.Generator().manual_seed(0))
    expected = gpt(tokens)
    gpt.compile_blocks()
    torch.testing.assert_close(gpt(tokens), expected)
    count = len(graphs)
    assert count > 0
    gpt.eval()
    for length in (5, 11, 24):
        torch.testing.assert_close(gpt(tokens[:, :length]), expected[:, :length], atol=1e-5, rtol=1e-4)
    copied = copy.deepcopy(gpt).train()
    with torch.no_grad():
        copied.embedding.weight.zero_()
    assert not torch.equal(copied(tokens), expected)
    torch.testing.assert_close(gpt.train()(tokens), expected)
    assert len(graphs) == count
