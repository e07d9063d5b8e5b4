"""Schemes, attentions and GPTs by name equal those of a run, and work in other models."""

import tomllib
from contextlib import nullcontext

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import poslab
from poslab.model.attention import Site
from poslab.model.gpt import build
from support.commands import ROOT, python
from support.models import BY_TURNS
from support.runs import request

SIZES = {"width": 32, "heads": 4, "layers": 4, "context_length": 16}


SHOWS_NAMES = """
import sys, poslab
print(*sorted(set(poslab.__all__) & set(dir(poslab))))
print(*{'torch', 'numpy', 'pydantic', 'hydra', 'matplotlib'} & set(sys.modules))
poslab.read
print(*{'torch', 'matplotlib', 'wandb'} & set(sys.modules))
poslab.train
print(*{'pandas', 'matplotlib', 'wandb'} & set(sys.modules))
print('__version__' in dir(poslab), poslab.__version__)
"""


def test_importing_poslab_loads_nothing_heavy_and_lists_its_names(tmp_path):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    shown = python("-c", SHOWS_NAMES, cwd=tmp_path).stdout.splitlines()
    assert shown == [" ".join(sorted(poslab.__all__)), "", "", "", f"True {version}"]
    with pytest.raises(AttributeError, match="no attribute 'shceme'"):
        _ = poslab.shceme


def test_a_gpt_has_the_initial_weights_of_a_run_with_its_seed():
    config = request(seed=3).config
    trained = build(config, 40)
    trained.initialise(3)
    made = poslab.gpt("rope", "flash", vocabulary=40, width=32, heads=2, layers=2, context_length=32, seed=3)
    assert made.state_dict().keys() == trained.state_dict().keys()
    for name, tensor in made.state_dict().items():
        assert torch.equal(tensor, trained.state_dict()[name]), name
    default = poslab.gpt()
    assert (default.geometry.width, default.geometry.context_length) == (128, 128)
    assert default(torch.zeros(1, 5, dtype=torch.long)).shape == (1, 5, 256)


@pytest.mark.parametrize(("pos", "attention"), BY_TURNS)
def test_a_part_by_itself_equals_that_of_a_gpt_with_the_same_seed(pos, attention):
    gpt = poslab.gpt(pos, attention, **SIZES, seed=5)
    scheme = poslab.scheme(pos, **SIZES, seed=5)
    assert all(map(torch.equal, scheme.parameters(), gpt.scheme.parameters()))
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 64, (2, 16), generator=generator)
    for each in (scheme, gpt.scheme):
        each.read_tokens(tokens)
    x = torch.randn(2, 16, 32, generator=generator)
    q, k, v = torch.randn(3, 2, 4, 16, 8, generator=generator)
    for index, block in enumerate(gpt.blocks):
        layer = gpt.scheme.layer(index)
        expected = block.attention.attend(q, k, v, Site.of(layer, gpt.scheme.place(16, None), x))
        alone = poslab.attention(attention, scheme, layer=index, seed=5)
        assert torch.equal(alone(q, k, v, x), expected)
        torch.testing.assert_close(alone.weights(q, k, x).to(v.dtype) @ v, expected, rtol=1e-3, atol=1e-4)
        seen = alone.scores(q, k, x).isfinite()
        latest = 0 if layer.normalised else -1  # under stick-breaking no token attends to itself
        causal = torch.ones(16, 16, dtype=torch.bool).tril(latest).triu(1 - (layer.geometry.window or 16))
        assert torch.equal(seen, causal.expand_as(seen))
        assert alone.kernel == block.attention.kernel


def test_each_layer_of_a_hybrid_has_the_attention_that_a_gpt_has_there():
    mixers = {"near": {"kind": "flash"}, "far": {"kind": "linear"}}
    section = {"kind": "hybrid", "layers": ["near", "far"], "mixers": mixers}
    scheme = poslab.scheme("none", **SIZES)
    alone = [poslab.attention(section, scheme, layer=layer) for layer in range(2)]
    blocks = poslab.gpt("none", section, **SIZES).blocks
    assert [each.attention.name for each in alone] == [block.attention.name for block in blocks[:2]]


def test_without_a_mask_every_token_attends_to_later_ones():
    first, second = torch.tensor([[1, 2, 3]]), torch.tensor([[1, 2, 4]])
    for causal in (True, False):
        gpt = poslab.gpt("rope", "softmax", causal=causal)
        assert torch.equal(gpt(first)[:, 0], gpt(second)[:, 0]) is causal
    with pytest.raises(poslab.ConfigError, match="choose a scheme for both sides"):
        poslab.gpt("fox", "softmax", causal=False)


def test_options_and_sections_take_effect():
    assert poslab.scheme("rope_500k", base=2e4, width=64).section()["base"] == 2e4
    assert poslab.gpt({"scheme": "rope", "base": 500.0}).scheme.section()["pairing"] == "half"
    assert poslab.gpt({"scheme": "rope_warped", "warp": "sqrt"}).scheme.section()["base"] == 10_000
    assert poslab.attention("performer", poslab.scheme(), features=32).attention.omega.shape == (32, 32)
    by_module = poslab.scheme("poslab.model.positions.t5", buckets=8, max_distance=16)
    assert by_module.section() == poslab.scheme("t5", buckets=8, max_distance=16).section()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: poslab.scheme("alibbi"),
            r"pos=alibbi does not exist \(did you mean alibi or bipe_alibi\?\); the options are alibi",
        ),
        (lambda: poslab.scheme("rope", bse=5.0), r"pos.bse is not a setting \(did you mean base\?\)"),
        (lambda: poslab.scheme("rope", heads=3), "width=128 is not a multiple of heads=3"),
        (lambda: poslab.attention("linear", poslab.scheme("fire")), "choose attention=flash or softmax"),
        (lambda: poslab.attention("flash", poslab.scheme(), layer=4), "layer=4: the scheme is for 4 layers"),
        (lambda: poslab.gpt(vocabulary=0), "vocabulary=0"),
        (lambda: poslab.gpt(vocabulary="bytes"), "vocabulary='bytes': it must be a whole number"),
        (lambda: poslab.scheme(None), "pos=None: pass the name of an option"),
        (lambda: poslab.scheme("learned", seed=-1), "seed=-1: it must be a whole number"),
        (lambda: poslab.attention("flash", "rope"), "scheme='rope': pass a scheme"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(make, message):
    with pytest.raises(poslab.ConfigError, match=message) as refused:
        make()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("attention", ["flash", "linear", "softmax"])
@pytest.mark.parametrize("pos", ["alibi", "inkling", "rope", "as_command_a"])
def test_a_call_with_given_positions_gives_its_weights_times_the_values_or_refuses(pos, attention):
    made = poslab.attention(attention, poslab.scheme(pos, width=32, layers=4))
    q, k, v = torch.randn(3, 1, 4, 3, 8, generator=torch.Generator().manual_seed(0))
    x = torch.linspace(-1, 1, 96).view(1, 3, 32)
    near, far = torch.tensor([4, 5, 6]), torch.tensor([0, 1, 90])
    refused = pos != "rope" and attention != "softmax"
    with pytest.raises(ValueError, match="positions with gaps") if refused else nullcontext():
        made(q, k, v, x, far)
    for positions in (near,) if refused else (near, far):
        mixed = made(q, k, v, x, positions)
        torch.testing.assert_close(made.weights(q, k, x, positions) @ v, mixed)


def test_wrong_shapes_and_missing_gates_are_refused():
    scheme = poslab.scheme("fox", heads=8, width=64)
    attention = poslab.attention("flash", scheme)
    q = torch.zeros(2, 8, 5, 8)
    with pytest.raises(ValueError, match="fox reads the input"):
        attention(q, q, q)
    with pytest.raises(ValueError, match=r"q has the shape \(2, 5, 8, 8\)"):
        attention(q.transpose(1, 2), q, q)
    short = poslab.attention("flash", poslab.scheme("learned", context_length=4))
    q = torch.zeros(1, 4, 5, 32)
    with pytest.raises(ValueError, match="5 tokens, but the positional scheme is defined up to 4"):
        short(q, q, q)


def test_a_call_on_a_cpu_leaves_the_switches_of_kernels_that_all_threads_share(monkeypatch):
    seen = []

    def recorded(*tensors, **options):
        seen.append(torch.backends.cuda.math_sdp_enabled())
        return scaled_dot_product_attention(*tensors, **options)

    monkeypatch.setattr("poslab.model.attention.flash.scaled_dot_product_attention", recorded)
    q = torch.ones(1, 4, 8, 32)
    poslab.attention("flash", poslab.scheme("rope"))(q, q, q)
    assert seen == [True]
