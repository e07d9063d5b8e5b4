"""Every attention against plain references, outputs and every gradient, in float64."""

import itertools
import typing
from typing import Any, Literal

import pytest
import torch
from conftest import ATTENTIONS, POSITIONS, SCHEMES, make_gpt
from torch.autograd.graph import saved_tensors_hooks

from poslab.attention import build_attention, linear
from poslab.attention.flash import STRIP
from poslab.attention.softmax import Softmax
from poslab.config import ConfigError
from poslab.positions import Geometry, build_scheme

PAIRS = list(itertools.product(SCHEMES, ATTENTIONS))
RELATIVE = ("none", "rope", "t5", "alibi")


def parts(pos, attention, heads=3, head_width=8, context_length=512):
    geometry = Geometry(heads * head_width, heads, context_length)
    scheme = build_scheme(SCHEMES[pos], geometry).double()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return build_attention(ATTENTIONS[attention], geometry, scheme), scheme


def inputs(length, heads=3, head_width=8, batch=2):
    generator = torch.Generator().manual_seed(length)
    shape = (3, batch, heads, length, head_width)
    return torch.randn(shape, generator=generator, dtype=torch.float64).unbind(0)


def outputs_and_gradients(attend, scheme, tensors):
    """What `attend` returns, and the gradients of q, k, v and of every parameter of the scheme."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    output = attend(*leaves)
    learned = list(scheme.parameters()) if scheme.bias(torch.arange(1)) is not None else []
    generator = torch.Generator().manual_seed(3)
    upstream = torch.randn(output.shape, generator=generator, dtype=output.dtype)
    return [output, *torch.autograd.grad(output, [*leaves, *learned], upstream)]


def by_the_formula(kind, q, k, v, scheme):
    """SCIENCE's sums, one query and one key at a time: what every attention is held against."""
    length, rows = q.shape[-2], []
    positions = torch.arange(length)
    bias = scheme.bias(positions)
    q_turned, k_turned = scheme.rotate(q, positions), scheme.rotate(k, positions)
    phi = torch.nn.functional.elu
    phi_q, phi_k = phi(q) + 1, phi(k) + 1
    phi_q_turned, phi_k_turned = scheme.rotate(phi_q, positions), scheme.rotate(phi_k, positions)
    for i in range(length):
        over, under = torch.zeros_like(v[..., 0, :]), torch.zeros_like(v[..., 0, :1])
        for j in range(i + 1):
            b = torch.zeros(q.shape[1], dtype=q.dtype) if bias is None else bias[:, i - j].to(q.dtype)
            if kind == "linear":
                weight = b.exp()[None, :, None]
                top = weight * (phi_q_turned[..., i, :] * phi_k_turned[..., j, :]).sum(-1, keepdim=True)
                bottom = weight * (phi_q[..., i, :] * phi_k[..., j, :]).sum(-1, keepdim=True)
            else:
                product = (q_turned[..., i, :] * k_turned[..., j, :]).sum(-1, keepdim=True)
                top = bottom = (product * q.shape[-1] ** -0.5 + b[None, :, None]).exp()
            over, under = over + top * v[..., j, :], under + bottom
        rows.append(over / under)
    return torch.stack(rows, dim=-2)


@pytest.mark.parametrize(("pos", "attention"), PAIRS)
def test_every_pair_is_its_formula(pos, attention):
    attend, scheme = parts(pos, attention)
    tensors = inputs(13)
    ours = outputs_and_gradients(
        lambda q, k, v: attend.attend(q, k, v, scheme, torch.arange(13)), scheme, tensors
    )
    plain = outputs_and_gradients(lambda q, k, v: by_the_formula(attention, q, k, v, scheme), scheme, tensors)
    for mine, reference in zip(ours, plain, strict=True):
        torch.testing.assert_close(mine, reference, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("length", [1, 2, STRIP - 1, STRIP, STRIP + 1, 300])
@pytest.mark.parametrize("pos", SCHEMES)
def test_flash_is_softmax(pos, length):
    """To 1e-10 in float64, T5's table included."""
    flash, scheme = parts(pos, "flash")
    softmax, _ = parts(pos, "softmax")
    positions, tensors = torch.arange(length), inputs(length)
    ours = outputs_and_gradients(lambda q, k, v: flash.attend(q, k, v, scheme, positions), scheme, tensors)
    plain = outputs_and_gradients(lambda q, k, v: softmax.attend(q, k, v, scheme, positions), scheme, tensors)
    for mine, reference in zip(ours, plain, strict=True):
        torch.testing.assert_close(mine, reference, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("pos", SCHEMES)
def test_flash_is_softmax_in_the_training_dtypes(pos, dtype):
    """Within 2e-5 in float32 and 2e-2 in bfloat16, whose numbers are 8e-3 apart at 1."""
    flash, scheme = parts(pos, "flash")
    softmax, _ = parts(pos, "softmax")
    scheme = scheme.to(torch.float32)
    q, k, v = (tensor.to(dtype) for tensor in inputs(200))
    mine = flash.attend(q, k, v, scheme, torch.arange(200))
    assert mine.dtype == dtype
    tolerance = 2e-5 if dtype == torch.float32 else 2e-2
    reference = softmax.attend(q, k, v, scheme, torch.arange(200))
    torch.testing.assert_close(mine, reference, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("pos", SCHEMES)
def test_flash_keeps_no_square_matrix(pos):
    """Nothing that autograd saves for backward is as large as length x length."""
    length = 4 * STRIP
    flash, scheme = parts(pos, "flash", heads=1)
    q, k, v = (tensor.requires_grad_() for tensor in inputs(length, heads=1, batch=1))
    kept = []
    with saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()) or tensor, lambda tensor: tensor):
        flash.attend(q, k, v, scheme, torch.arange(length))
    assert max(kept) < length * length


def test_flash_names_the_kernel_that_ran():
    kernels = {}
    for pos in SCHEMES:
        flash, scheme = parts(pos, "flash")
        flash.attend(*inputs(5), scheme, torch.arange(5))
        kernels[pos] = flash.kernel
    assert {pos: kernels[pos] for pos in RELATIVE} == {
        "none": "torch flash (cpu)",
        "rope": "torch flash (cpu)",
        "t5": "strips",
        "alibi": "strips",
    }


@pytest.mark.parametrize("pos", RELATIVE)
def test_scores_depend_on_distance_alone(pos):
    """Content that repeats after 7 tokens gives the score of (i, j) again at (i + 7, j + 7)."""
    softmax, scheme = parts(pos, "softmax")
    assert isinstance(softmax, Softmax)
    q, k, _ = (tensor[..., :7, :].repeat(1, 1, 6, 1) for tensor in inputs(7))
    scores = softmax.scores(q, k, scheme, torch.arange(42))
    torch.testing.assert_close(scores[..., 7:, 7:], scores[..., :-7, :-7], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("pos", SCHEMES)
def test_only_schemes_that_add_to_the_input_break_shift_invariance(pos):
    gpt = make_gpt(SCHEMES[pos], ATTENTIONS["softmax"])
    block = gpt.blocks[0]
    tokens = torch.arange(42)[None] % 7
    positions = torch.arange(42)
    embedded = gpt.embedding(tokens)
    added = not torch.equal(gpt.scheme.embed(embedded, positions), embedded)
    x = block.norm_attention(gpt.scheme.embed(embedded, positions))
    q, k, _ = block.query_key_value(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
    scores = block.attention.scores(q, k, gpt.scheme, positions)
    assert torch.allclose(scores[..., 7:, 7:], scores[..., :-7, :-7]) != added


@pytest.mark.parametrize("pos", POSITIONS)
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_every_pair_is_causal(pos, attention):
    """A changed token changes its own logits and later ones, none before it; and the past is used."""
    gpt = make_gpt(POSITIONS[pos], ATTENTIONS[attention])
    tokens = torch.randint(0, 50, (1, 40), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[0, 25] = (changed[0, 25] + 1) % 50
    difference = (gpt(tokens) - gpt(changed)).abs().amax(dim=-1)[0]
    assert difference[:25].max() < 1e-9
    assert (difference[25:] > 1e-9).all()


def test_without_positions_or_mask_order_would_be_invisible_but_the_mask_shows_it():
    """Haviv et al.: with pos=none the last token's logits still change when earlier tokens swap places."""
    gpt = make_gpt(SCHEMES["none"], ATTENTIONS["softmax"])
    tokens = torch.tensor([[5, 9, 13, 2, 7]])
    swapped = torch.tensor([[9, 5, 13, 2, 7]])
    assert not torch.allclose(gpt(tokens)[0, -1], gpt(swapped)[0, -1])


def other_value(annotation: Any, value: Any) -> Any:
    """Another value that the field accepts."""
    if typing.get_origin(annotation) is Literal:
        return next(choice for choice in typing.get_args(annotation) if choice != value)
    if isinstance(value, bool):
        return not value
    return value * 2


def fields():
    """Every field of every file in conf/pos and conf/attention, other than the one that names its module."""
    geometry = Geometry(32, 4, 64)
    for name, section in POSITIONS.items():
        scheme = build_scheme(section, geometry)
        for key in section.keys() - {"scheme"}:
            yield "pos", name, key, scheme.options_class.model_fields[key].annotation
    for name, section in ATTENTIONS.items():
        attention = build_attention(section, geometry, build_scheme(SCHEMES["none"], geometry))
        for key in section.keys() - {"kind"}:
            yield "attention", name, key, attention.options_class.model_fields[key].annotation


@pytest.mark.parametrize(("group", "name", "key", "annotation"), sorted(fields(), key=str))
def test_every_field_of_every_arm_changes_the_model(group, name, key, annotation):
    arm = (POSITIONS if group == "pos" else ATTENTIONS)[name]
    other = {**arm, key: other_value(annotation, arm[key])}
    tokens = torch.randint(0, 50, (1, 64), generator=torch.Generator().manual_seed(0))
    outputs = []
    for section in (arm, other):
        pos = section if group == "pos" else SCHEMES["rope"]
        attention = section if group == "attention" else ATTENTIONS["softmax"]
        outputs.append(make_gpt(pos, attention)(tokens))
    assert not torch.allclose(*outputs, atol=1e-6)


@pytest.mark.parametrize("pos", POSITIONS)
def test_no_two_arms_are_the_same_model(pos):
    tokens = torch.randint(0, 50, (1, 64), generator=torch.Generator().manual_seed(0))
    mine = make_gpt(POSITIONS[pos], ATTENTIONS["softmax"])(tokens)
    for other in POSITIONS.keys() - {pos}:
        assert not torch.allclose(mine, make_gpt(POSITIONS[other], ATTENTIONS["softmax"])(tokens), atol=1e-6)


def build(group, section):
    geometry = Geometry(32, 4, 64)
    if group == "pos":
        return build_scheme(section, geometry)
    return build_attention(section, geometry, build_scheme(SCHEMES["none"], geometry))


@pytest.mark.parametrize("group", ["pos", "attention"])
def test_arms_leave_nothing_to_hidden_defaults(group):
    """A field that a file does not say is an error, so that a file shows all that decides."""
    for section in (POSITIONS if group == "pos" else ATTENTIONS).values():
        for key in section.keys() - {"scheme", "kind"}:
            with pytest.raises(ConfigError, match=f"{group}.{key} is missing"):
                build(group, {name: value for name, value in section.items() if name != key})
        with pytest.raises(ConfigError, match="is not a setting"):
            build(group, {**section, "extra": 1})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("pos", SCHEMES)
def test_flash_is_softmax_on_cuda(pos, dtype):
    flash, scheme = parts(pos, "flash", head_width=16)
    softmax, _ = parts(pos, "softmax", head_width=16)
    scheme = scheme.to("cuda", torch.float32)
    q, k, v = (tensor.to("cuda", dtype) for tensor in inputs(300, head_width=16))
    positions = torch.arange(300, device="cuda")
    tolerance = 1e-4 if dtype == torch.float32 else 3e-2
    mine = flash.attend(q, k, v, scheme, positions)
    assert flash.kernel
    reference = softmax.attend(q, k, v, scheme, positions)
    torch.testing.assert_close(mine, reference, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("chunk", [16, 64, 256])
@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 1000])
@pytest.mark.parametrize("pos", RELATIVE)
def test_linear_in_chunks_is_the_masked_product(pos, length, chunk):
    """Both sums and every gradient to 1e-10, T5's table included, at any length and chunk size."""
    _, scheme = parts(pos, "linear")
    q, k, v = inputs(length, batch=1)
    tail = scheme.tail()
    reach = max(length, -(-tail.horizon // chunk) * chunk + chunk)

    def weights():
        bias = scheme.bias(torch.arange(reach))
        return q.new_ones(3, reach) if bias is None else (bias - bias.amax(-1, keepdim=True).detach()).exp()

    def chunked(q, k, v):
        return linear.weighted_sums(q, k, v, weights(), tail, chunk)

    def masked(q, k, v):
        return (q @ k.mT * linear.masked_weights(weights()[:, :length])) @ v

    ours = outputs_and_gradients(chunked, scheme, (q, k, v))
    plain = outputs_and_gradients(masked, scheme, (q, k, v))
    for mine, reference in zip(ours, plain, strict=True):
        torch.testing.assert_close(mine, reference, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("pos", RELATIVE)
def test_linear_keeps_memory_in_proportion_to_length(pos):
    """What autograd keeps for backward doubles with the length, and no more."""
    kept = {}
    for length in (1024, 2048):
        attend, scheme = parts(pos, "linear", heads=1)
        q, k, v = (tensor.requires_grad_() for tensor in inputs(length, heads=1, batch=1))
        sizes = []
        with saved_tensors_hooks(lambda x, sizes=sizes: sizes.append(x.numel()) or x, lambda x: x):
            attend.attend(q, k, v, scheme, torch.arange(length))
        kept[length] = sum(sizes)
        assert attend.kernel == "linear, chunked"
    assert kept[2048] < 2.1 * kept[1024]
