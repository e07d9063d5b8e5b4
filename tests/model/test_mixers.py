"""Mixers without attention: compared with sums in numpy, step by step, under schemes, and in hybrids."""

import numpy as np
import pytest
import torch

from poslab.model.attention import Site, build_attention
from poslab.model.gpt import initialise
from poslab.model.kernels.recurrent import by_chunks, by_steps
from poslab.model.positions import Geometry, build_scheme
from support.attentions import assert_same
from support.models import ATTENTIONS, POSITIONS, SCHEMES, make_gpt

GEOMETRY = Geometry(width=24, heads=3, context_length=64, layers=4)
MIXERS = ["retention", "gated_linear", "gated_delta"]
HYBRID = ATTENTIONS["hybrid"]


def inputs(length, delta):
    """Return q, k, v, log decays and strengths; keys have norm 1, which the delta rule needs."""
    stream = torch.Generator().manual_seed(length)
    q, k = torch.randn(2, 2, 3, length, 4, generator=stream, dtype=torch.float64)
    v = torch.randn(2, 3, length, 8, generator=stream, dtype=torch.float64)
    log_decay, strength = torch.rand(2, 2, 3, length, generator=stream, dtype=torch.float64)
    parts = [q, torch.nn.functional.normalize(k, dim=-1), v, -log_decay]
    return [*parts, strength] if delta else parts


def with_gradients(function, tensors):
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    output = function(*leaves)
    upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(1), dtype=output.dtype)
    return [output, *torch.autograd.grad(output, leaves, upstream)]


@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize("chunk", [1, 16, 64])
@pytest.mark.parametrize("length", [1, 16, 150])
def test_chunks_equal_the_steps_with_every_gradient(length, chunk, delta):
    tensors = inputs(length, delta)
    chunked = with_gradients(lambda *parts: by_chunks(*parts, chunk=chunk), tensors)
    assert_same(chunked, with_gradients(by_steps, tensors))


@pytest.mark.parametrize("log_decay", [-1e4, -1e-8])
def test_long_and_short_memories_stay_finite_in_float32(log_decay):
    q, k, v, decays, strength = (tensor.float() for tensor in inputs(300, True))
    parts = [q, k, v, torch.full_like(decays, log_decay), strength]
    for tensor in with_gradients(by_chunks, parts):
        assert bool(torch.isfinite(tensor).all())


def mixer_under(pos, name):
    """Return a layer's mixer with random matrices in float64, and vectors as initialised for training."""
    scheme = build_scheme(SCHEMES[pos], GEOMETRY).double()
    mixer = build_attention(ATTENTIONS[name], GEOMETRY, scheme.layer(0))
    initialise(mixer, 0, GEOMETRY.layers, "blocks.0.attention")
    with torch.no_grad():
        for parameter in mixer.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.5, generator=torch.Generator().manual_seed(parameter.numel()))
    return mixer.double(), scheme


def hidden(length):
    return torch.randn(2, length, 24, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def numpy_mixer(mixer, x, turned):
    """Compute the whole mixer in numpy, token by token; `turned` rotates (H T K) queries and keys."""
    weights = {name: parameter.detach().numpy() for name, parameter in mixer.named_parameters()}

    def silu(z):
        return z / (1 + np.exp(-z))

    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    read = weights["query_key_value_gate.weight"] @ x.T  # (channels, T)
    read, gate = read[:48], read[48:]
    if "convolution.weight" in weights:
        taps, padded = weights["convolution.weight"][:, 0], np.pad(read, ((0, 0), (3, 0)))
        read = silu(read + sum(taps[:, [i]] * padded[:, i : i + len(x)] for i in range(4)))
    q, k, v = (part.reshape(3, -1, len(x)).swapaxes(1, 2) for part in (read[:12], read[12:24], read[24:]))
    q, k = turned(q), turned(k)
    if mixer.name == "gated_delta":
        q, k = (part / np.linalg.norm(part, axis=-1, keepdims=True) for part in (q, k))
    rows = []
    for h in range(3):
        state = np.zeros((4, 8))
        outputs = []
        for t in range(len(x)):
            if mixer.name == "retention":
                a = 1 - 2.0 ** (-5 - h)
            else:
                step = np.log1p(np.exp(weights["decay.weight"][h] @ x[t] + weights["offset"][h]))
                a = np.exp(-np.exp(weights["log_rate"][h]) * step)
            state = a * state
            value = v[h, t]
            if mixer.name == "gated_delta":
                value = sigmoid(weights["overwrite.weight"][h] @ x[t]) * (value - k[h, t] @ state)
            state = state + np.outer(k[h, t], value)
            o = q[h, t] @ state
            outputs.append(o / np.sqrt((o**2).mean() + 1e-6) * weights["norm.weight"])
        rows.append(outputs)
    mixed = np.concatenate(rows, axis=-1)  # (T, D), head after head
    return (mixed * silu(gate.T)) @ weights["project_attention.weight"].T


@pytest.mark.parametrize("pos", ["none", "rope"])
@pytest.mark.parametrize("name", MIXERS)
def test_a_mixer_equals_its_formula(name, pos):
    mixer, scheme = mixer_under(pos, name)
    x, positions = hidden(70), torch.arange(70)
    found = mixer(x, Site(scheme, positions)).detach().numpy()

    def turned(part):
        if pos == "none":
            return part
        angles = np.arange(70)[:, None] * 10_000.0 ** (-np.arange(2) / 2)
        first, second = part[..., :2], part[..., 2:]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)

    for row in range(2):
        np.testing.assert_allclose(found[row], numpy_mixer(mixer, x[row].numpy(), turned), atol=1e-9)


@pytest.mark.parametrize("name", MIXERS)
def test_the_last_tokens_only_get_the_same_output_as_among_all(name):
    mixer, scheme = mixer_under("rope", name)
    whole, *alone = (mixer(hidden(70), Site(scheme, torch.arange(70), last=last)) for last in (None, 1, 65))
    torch.testing.assert_close(alone, [whole[:, -1:], whole[:, -65:]])
    assert mixer.kernel == f"{name}, chunked"


@pytest.mark.parametrize("name", MIXERS)
def test_half_precision_is_close_and_the_state_is_in_float32(name):
    mixer, scheme = mixer_under("rope", name)
    x, site = hidden(70), Site(scheme, torch.arange(70))
    expected = mixer(x, site).float()
    mixer.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = mixer(x.float(), site)
    assert found.dtype == torch.bfloat16
    error = (found.float() - expected).norm() / expected.norm()
    assert error < 0.05
    assert mixer.to(torch.bfloat16)(x.bfloat16(), site).dtype == torch.bfloat16


@pytest.mark.parametrize("name", MIXERS)
def test_a_mixer_has_about_as_many_parameters_as_attention_and_mambas_initial_values(name):
    geometry = Geometry(128, 4, 128, 1)
    scheme = build_scheme(SCHEMES["none"], geometry)
    mixer = build_attention(ATTENTIONS[name], geometry, scheme)
    count = sum(parameter.numel() for parameter in mixer.parameters())
    assert count == pytest.approx(4 * 128**2, rel=0.04)
    initialise(mixer, 0, 4, "blocks.0.attention")
    decay = mixer.log_decay(torch.zeros(1, 1, 128)).exp()
    assert 0.2 < decay.min() <= decay.max() < 1  # exp(-16 * 0.1) is 0.202
    if name != "retention":
        other = build_attention(ATTENTIONS[name], geometry, scheme)
        initialise(other, 1, 4, "blocks.0.attention")
        assert not torch.equal(other.offset, mixer.offset)


def test_a_hybrid_has_positions_only_in_its_attention():
    """Its recurrent layers are those of pos=none under every scheme; a bias acts in layers with attention."""
    tokens = torch.randint(0, 50, (1, 40), generator=torch.Generator().manual_seed(0))
    x = torch.randn(1, 40, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    outputs = {}
    for pos in ("none", "rope", "alibi"):
        gpt = make_gpt(SCHEMES[pos], HYBRID)
        kinds = [block.attention.name for block in gpt.blocks]
        assert kinds == ["gated_delta", "gated_delta", "gated_delta", "flash"]
        site = Site(gpt.scheme.layer(0), torch.arange(40))
        outputs[pos] = [block.attention(x, site) for block in gpt.blocks]
        gpt(tokens)
        assert gpt.kernel.startswith("gated_delta, chunked, torch flash")
    for pos in ("rope", "alibi"):
        same = [torch.equal(a, b) for a, b in zip(outputs[pos], outputs["none"], strict=True)]
        assert same == [True, True, True, False]


def test_a_scheme_with_parts_by_layer_serves_the_layers_of_a_hybrid_that_use_it():
    layers = {"layers": ["none", "none", "none", "fox"], "schemes": {"none": {"scheme": "none"}}}
    layers["schemes"]["fox"] = POSITIONS["fox"]
    gpt = make_gpt({"scheme": "schedule", **layers}, HYBRID)
    gpt(torch.arange(30)[None]).square().mean().backward()
    assert all(parameter.grad is not None for parameter in gpt.parameters())
