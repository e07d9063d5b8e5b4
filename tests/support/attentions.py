"""An attention under a scheme with random parameters, and random inputs for it."""

import torch
from torch.autograd.graph import saved_tensors_hooks

from poslab.config.schema import Options
from poslab.model.attention import Site, build_attention
from poslab.model.positions import Geometry, Scheme, build_scheme
from support.models import ATTENTIONS, SCHEMES

HEADS, HEAD_WIDTH = 3, 8


class BiasAndGates(Scheme):
    """A bias by both positions together with gates, which no scheme of the package has."""

    def pairwise_bias(self, queries, keys):
        return -(queries[:, None] * keys).double().sqrt().expand(self.geometry.heads, -1, -1)

    def log_gates(self, x):
        return -x.square().mean(dim=-1, keepdim=True).mT.expand(-1, self.geometry.heads, -1)


def parts(pos, attention, heads=HEADS, context_length=1000, **more):
    """Return an attention, its layer's scheme with random parameters, and the whole scheme of the model.

    `pos` is a name in conf/pos, a section or a class, `attention` a name or a section; `more` is geometry.
    """
    geometry = Geometry(heads * HEAD_WIDTH, heads, context_length, layers=4, **more)
    section = SCHEMES[pos] if isinstance(pos, str) else pos
    whole = pos(Options(), geometry) if isinstance(pos, type) else build_scheme(section, geometry)
    whole.double()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    whole.read_tokens(torch.randint(64, (1, 4096), generator=generator))
    scheme = whole.layer(0)
    section = ATTENTIONS[attention] if isinstance(attention, str) else attention
    attend = build_attention(section, geometry, scheme)
    attend.draw(torch.Generator().manual_seed(5))
    return attend, scheme, whole


def attended(attend, q, k, v, site):
    return attend.attend(q, k, v, site)


def masked(attend, q, k, v, site):
    """Compute the same by T x T products."""
    return attend.weights(q, k, site) @ v


def assert_same(ours, plain):
    for mine, reference in zip(ours, plain, strict=True):
        torch.testing.assert_close(mine, reference, atol=1e-10, rtol=1e-10)


class Case:
    """Random inputs of a length, at the positions of the scheme."""

    def __init__(self, pos, length, heads=HEADS, batch=2, dtype=torch.float64, **options):
        generator = torch.Generator().manual_seed(length)
        shape = (3, batch, heads, length, HEAD_WIDTH)
        self.q, self.k, self.v = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        x = (batch, length, heads * HEAD_WIDTH)
        self.x = torch.randn(x, generator=generator, dtype=torch.float64).to(dtype)
        self.pos, self.heads, self.options, self.length = pos, heads, options, length

    def outputs_and_gradients(self, attention, how, sinks=None):
        """Return the output of `how` and gradients of q, k, v, the layer's input, sinks and parameters."""
        attend, scheme, whole = parts(self.pos, attention, self.heads, **self.options)
        positions = whole.place(self.length, None)
        leaves = [tensor.clone().requires_grad_() for tensor in (self.q, self.k, self.v, self.x)]
        if sinks is not None:
            leaves.append(sinks.clone().requires_grad_())
        site = Site.of(scheme, positions, leaves[3], None if sinks is None else leaves[4])
        output = how(attend, *leaves[:3], site)
        generator = torch.Generator().manual_seed(3)
        upstream = torch.randn(output.shape, generator=generator, dtype=output.dtype)
        inputs = [*leaves, *whole.parameters()]
        gradients = torch.autograd.grad(output, inputs, upstream, allow_unused=True)
        return [output, *(torch.zeros(()) if each is None else each for each in gradients)]

    def check(self, attention, expected=masked, how=attended, sinks=None):
        """Check that `how` equals `expected`, outputs and every gradient."""
        ours = self.outputs_and_gradients(attention, how, sinks)
        assert_same(ours, self.outputs_and_gradients(attention, expected, sinks))


def sizes_kept(pos, attention, length, **more):
    """Return the numbers of elements of all tensors that autograd stores for backward."""
    attend, scheme, whole = parts(pos, attention, heads=1, context_length=length, **more)
    case = Case(pos, length, heads=1, batch=1)
    q, k, v = (tensor.requires_grad_() for tensor in (case.q, case.k, case.v))
    site, sizes = Site.of(scheme, whole.place(length, None), case.x), []
    with saved_tensors_hooks(lambda tensor: sizes.append(tensor.numel()) or tensor, lambda tensor: tensor):
        attend.attend(q, k, v, site)
    return sizes
