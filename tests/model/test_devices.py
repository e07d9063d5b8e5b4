"""Models in the precisions of training compared with float64, on a CPU and on a GPU."""

from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import poslab
from poslab.model.attention import Site, build_attention
from poslab.model.attention.linear import CHUNK
from poslab.model.positions import Geometry, build_scheme
from support.devices import CUDA
from support.models import ATTENTIONS, BY_TURNS, PAIRS, SCHEMES, make_gpt, ropes_once

HEADS, HEAD_WIDTH, LENGTH = 2, 16, 300  # heads that every kernel accepts, and more than two of their blocks
# Relative to the norm. bfloat16 has 8 bits: its numbers are 0.4 % apart.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 3e-2}
# Linear attention and Performer on a CPU too, which shows that the test is right; flash in all kernels.
ON_CPU = ("rope", "t5", "fox")
FLASH = [pair for pair in ropes_once(PAIRS) if pair[1] == "flash"]
TWO_SIDED = [("rope", "flash"), ("t5", "flash"), ("alibi", "flash"), ("rope", "linear"), ("alibi", "linear")]
CASES = [
    pytest.param(*pair, causal, device, marks=marks)
    for pair, causal in (*((pair, True) for pair in PAIRS), *((pair, False) for pair in TWO_SIDED))
    for device, marks in (("cpu", ()), ("cuda", CUDA.marks))
    if device == "cuda" or not causal or pair[0] in ON_CPU or pair in FLASH
]


def outputs_and_gradients(pos, attention, causal, device, dtype, plain):
    """Return those of one layer with random parameters; `plain`: by T x T products in float64 on the CPU."""
    geometry = Geometry(HEADS * HEAD_WIDTH, HEADS, 320, layers=4, causal=causal)
    generator = torch.Generator().manual_seed(7)
    whole = build_scheme(SCHEMES[pos], geometry)
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    scheme = whole.layer(0)
    attend = build_attention(ATTENTIONS[attention], geometry, scheme)
    attend.draw(torch.Generator().manual_seed(5))
    drawn = torch.randn(4, 2, HEADS, LENGTH, HEAD_WIDTH, generator=generator).to(dtype)
    x = torch.randn(2, LENGTH, HEADS * HEAD_WIDTH, generator=generator).to(dtype)
    if plain:
        device, dtype = "cpu", torch.float64
        whole.double()
        attend.double()
    else:
        whole.to(device)
        attend.to(device)
    leaves = [tensor.to(device, dtype).requires_grad_() for tensor in (*drawn[:3], x)]
    q, k, v, x = leaves
    whole.read_tokens((torch.arange(LENGTH) % 64).expand(2, -1).to(device))  # for BiPE, with its ends
    site = Site.of(scheme, whole.place(LENGTH, None).to(device), x)
    output = attend.weights(q, k, site) @ v if plain else attend.attend(q, k, v, site)
    inputs = [*leaves, *scheme.parameters()]
    gradients = torch.autograd.grad(output, inputs, drawn[3].to(device, output.dtype), allow_unused=True)
    assert plain or (attend.kernel and output.dtype == dtype)
    return [output, *(torch.zeros(()) if each is None else each for each in gradients)]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("pos", "attention", "causal", "device"), CASES)
def test_every_pair_and_its_gradients_equal_the_plain_form(pos, attention, causal, device, dtype):
    mine = outputs_and_gradients(pos, attention, causal, device, dtype, plain=False)
    assert_near(
        mine, outputs_and_gradients(pos, attention, causal, device, dtype, plain=True), TOLERANCE[dtype]
    )


def assert_near(mine, expected, tolerance):
    largest = max(float(each.detach().norm()) for each in expected[1:])
    for one, other in zip(mine, expected, strict=True):
        # A gradient that cancels (of a bias that softmax ignores) has the rounding errors of the others.
        size = max(float(other.detach().norm()), 0.1 * largest)
        assert float((one.detach().cpu().double() - other.detach()).norm()) < tolerance * size


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("mixer", ["retention", "gated_linear", "gated_delta", "hybrid"])
def test_a_gpt_of_mixers_has_the_loss_and_gradients_of_float64(mixer, device):
    tokens, targets = torch.randint(256, (2, 2, 200), generator=torch.Generator().manual_seed(0))
    gpt = poslab.gpt("none", mixer, layers=4, width=64, heads=2, context_length=128)
    found = []
    for place, dtype in (("cpu", torch.float64), (device, torch.float32)):
        gpt.to(place, dtype).zero_grad()
        loss = gpt(tokens.to(place), targets=targets.to(place))
        loss.backward()
        found.append([loss, *(parameter.grad.clone() for parameter in gpt.parameters())])
    assert_near(found[1], found[0], TOLERANCE[torch.float32])


class Copies(TorchDispatchMode):
    """Records every copy between CPU and device; a copy that is not asynchronous has to be waited for."""

    def __init__(self):
        super().__init__()
        self.copies = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function.name() in ("aten::_to_copy", "aten::copy_"):
            tensors = [each for each in tree_leaves((args, kwargs, result)) if isinstance(each, torch.Tensor)]
            if len({tensor.device.type for tensor in tensors}) > 1:
                self.copies.append(function.name())
        return result


# Softmax and Performer share the code of linear attention and of schemes.
WAITING = {*BY_TURNS, *((pos, "linear") for pos in ON_CPU), *FLASH}


@pytest.mark.parametrize(("pos", "attention"), sorted(WAITING))
def test_no_pair_makes_the_cpu_wait_for_the_device(pos, attention, monkeypatch):
    """Forward and backward on the meta device: reading a number raises, and a copy to it is recorded."""
    monkeypatch.setattr(torch, "autocast", lambda *arguments, **options: nullcontext())  # meta has none
    monkeypatch.setitem(CHUNK, "meta", 16)
    layers = 4 if SCHEMES[pos]["scheme"] == "schedule" else 1
    gpt = make_gpt(SCHEMES[pos], ATTENTIONS[attention], layers=layers, dtype=torch.float32).to("meta")
    tokens = torch.zeros(2, 40, dtype=torch.int64, device="meta")
    positions = gpt.scheme.place(40, None).to("meta")
    made = []

    def noting(plain, data, **options):
        if "device" in options and not isinstance(data, torch.Tensor):
            made.append(data)
        return plain(data, **options)

    for name in ("tensor", "as_tensor"):
        monkeypatch.setattr(torch, name, partial(noting, getattr(torch, name)))
    with Copies() as seen:
        gpt(tokens, positions=positions).sum().backward()
    assert [*seen.copies, *made] == []
    assert all(parameter.grad is not None for name, parameter in gpt.named_parameters() if "blocks" in name)
