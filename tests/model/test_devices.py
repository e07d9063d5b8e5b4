"""Every pair in the precisions of training beside the plain form in float64, on a CPU and on a GPU."""

import pytest
import torch

from poslab.model.attention import Site, build_attention
from poslab.model.positions import Geometry, build_scheme
from support.devices import CUDA
from support.models import ATTENTIONS, PAIRS, SCHEMES

HEADS, HEAD_WIDTH, LENGTH = 2, 16, 300  # heads that every kernel takes, and more than two of their blocks
# Of the norm of what is compared. bfloat16 has 8 bits: its numbers are 0.4 % apart.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 3e-2}
GATED = 3  # times that: a gate's gradient is a sum over all tokens, most of which cancels
ON_CPU = (
    "rope",
    "t5",
    "fox",
)  # which shows that the test is right; float64 on a CPU is for test_attention.py
CASES = [
    pytest.param(*pair, device, marks=marks)
    for pair in PAIRS
    for device, marks in (("cpu", ()), ("cuda", CUDA.marks))
    if device == "cuda" or pair[0] in ON_CPU
]


def outputs_and_gradients(pos, attention, device, dtype, plain):
    """Of one layer under random parameters; `plain`: by T x T products in float64 on the CPU."""
    geometry = Geometry(HEADS * HEAD_WIDTH, HEADS, 320, layers=4)
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
    site = Site(scheme, whole.place(LENGTH, None).to(device), scheme.log_gates(x))
    output = attend.weights(q, k, site) @ v if plain else attend.attend(q, k, v, site)
    inputs = [*leaves, *scheme.parameters()]
    gradients = torch.autograd.grad(output, inputs, drawn[3].to(device, output.dtype), allow_unused=True)
    assert plain or attend.kernel
    return [output, *(torch.zeros(()) if each is None else each for each in gradients)]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("pos", "attention", "device"), CASES)
def test_every_pair_and_its_gradients_are_those_of_the_plain_form(pos, attention, device, dtype):
    mine = outputs_and_gradients(pos, attention, device, dtype, plain=False)
    plain = outputs_and_gradients(pos, attention, device, dtype, plain=True)
    largest = max(float(each.detach().norm()) for each in plain[1:])
    tolerance = TOLERANCE[dtype] * (GATED if pos == "fox" else 1)
    for one, other in zip(mine, plain, strict=True):
        # A gradient that cancels out (of a bias that softmax ignores) has the rounding of the others.
        size = max(float(other.detach().norm()), 0.1 * largest)
        assert float((one.detach().cpu().double() - other.detach()).norm()) < tolerance * size
