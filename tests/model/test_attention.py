"""Every attention against plain references, outputs and every gradient, in float64."""

import itertools

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from poslab.config.schema import ConfigError, Options
from poslab.model.attention import Site, build_attention
from poslab.model.positions import Geometry, Scheme, Tail, build_scheme
from poslab.model.positions.rope import turn
from poslab.model.strips import STRIP
from support.models import ATTENTIONS, PAIRS, POSITIONS, SCHEMES, make_gpt

HEADS, HEAD_WIDTH = 3, 8


def parts(pos, attention, heads=HEADS, context_length=1000):
    """An attention, the scheme it works under, with random parameters, and the whole scheme of the model."""
    geometry = Geometry(heads * HEAD_WIDTH, heads, context_length, layers=4)
    whole = build_scheme(SCHEMES[pos], geometry).double()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    scheme = whole.layer(0)
    attend = build_attention(ATTENTIONS[attention], geometry, scheme)
    attend.draw(torch.Generator().manual_seed(5))
    return attend, scheme, whole


IN_CHUNKS = [(pos, attention) for pos, attention in PAIRS if parts(pos, attention)[0].form == "O(L)"]


class Case:
    """Random inputs of a length, at the places where the scheme puts them."""

    def __init__(self, pos, length, heads=HEADS, batch=2, dtype=torch.float64, **options):
        generator = torch.Generator().manual_seed(length)
        shape = (3, batch, heads, length, HEAD_WIDTH)
        self.q, self.k, self.v = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        x = (batch, length, heads * HEAD_WIDTH)
        self.x = torch.randn(x, generator=generator, dtype=torch.float64).to(dtype)
        self.pos, self.heads, self.options, self.length = pos, heads, options, length

    def outputs_and_gradients(self, attention, how):
        """What `how` gives, with the gradients of q, k, v, the gates' input and the scheme's parameters."""
        attend, scheme, whole = parts(self.pos, attention, self.heads, **self.options)
        positions = whole.place(self.length, None)
        leaves = [tensor.clone().requires_grad_() for tensor in (self.q, self.k, self.v, self.x)]
        output = how(attend, *leaves[:3], Site(scheme, positions, scheme.log_gates(leaves[3])))
        generator = torch.Generator().manual_seed(3)
        upstream = torch.randn(output.shape, generator=generator, dtype=output.dtype)
        inputs = [*leaves, *scheme.parameters()]
        gradients = torch.autograd.grad(output, inputs, upstream, allow_unused=True)
        return [output, *(torch.zeros(()) if each is None else each for each in gradients)]


def attended(attend, q, k, v, site):
    return attend.attend(q, k, v, site)


def masked(attend, q, k, v, site):
    """The same by T x T products."""
    return attend.weights(q, k, site) @ v


def assert_same(ours, plain):
    for mine, reference in zip(ours, plain, strict=True):
        torch.testing.assert_close(mine, reference, atol=1e-10, rtol=1e-10)


def by_the_formula(attend, q, k, v, site):
    """The sums as they are written, one query and one key at a time: the reference of every attention."""
    scheme, positions, log_gates = site.scheme, site.positions, site.log_gates
    length, rows = q.shape[-2], []
    bias = scheme.pairwise_bias(positions, positions)
    gates = torch.zeros(1, 1, length) if log_gates is None else log_gates
    kernel = attend.form == "O(L)"
    if kernel:
        phi_q, phi_k = attend.feature_map(q, True), attend.feature_map(k, False)
        turned_q, turned_k = scheme.rotate_queries(phi_q, positions), scheme.rotate_keys(phi_k, positions)
    else:
        turned_q = scheme.rotate_queries(scheme.logit_features(q), positions)
        turned_k = scheme.rotate_keys(scheme.logit_features(k), positions)
    for i in range(length):
        over, under = torch.zeros_like(v[..., 0, :]), torch.zeros_like(v[..., 0, :1])
        for j in range(i + 1):
            added = gates[..., j + 1 : i + 1].sum(dim=-1, keepdim=True)
            if bias is not None:
                added = added + bias[:, i, j, None]
            product = (turned_q[..., i, :] * turned_k[..., j, :]).sum(-1, keepdim=True)
            if kernel:
                top = added.exp() * product
                bottom = added.exp() * (phi_q[..., i, :] * phi_k[..., j, :]).sum(-1, keepdim=True)
            else:
                top = bottom = (product * q.shape[-1] ** -0.5 + added).exp()
            over, under = over + top * v[..., j, :], under + bottom
        rows.append(over / under)
    return torch.stack(rows, dim=-2)


@pytest.mark.parametrize(("pos", "attention"), PAIRS)
def test_every_pair_is_its_formula(pos, attention):
    case = Case(pos, 13)
    assert_same(
        case.outputs_and_gradients(attention, attended),
        case.outputs_and_gradients(attention, by_the_formula),
    )


@pytest.mark.parametrize("last", [1, 65, 70])
@pytest.mark.parametrize(("pos", "attention"), PAIRS)
def test_the_last_tokens_alone_get_what_they_get_among_all(pos, attention, last):
    """By rows of weights up to half of the tokens, and whole beyond."""
    case = Case(pos, 131)

    def alone(attend, *arguments):
        return attend.attend_last(*arguments, last)

    def among_all(attend, *arguments):
        return attend.attend(*arguments)[..., -last:, :]

    assert_same(
        case.outputs_and_gradients(attention, alone), case.outputs_and_gradients(attention, among_all)
    )


@pytest.mark.parametrize("attention", ["linear", "performer"])
@pytest.mark.parametrize("pos", ["kerple", "fire"])
def test_a_pair_without_a_fast_form_is_refused_and_says_what_to_choose(pos, attention):
    with pytest.raises(ConfigError, match=rf"pos.scheme={pos}.*attention=flash"):
        parts(pos, attention)


def test_pope_with_random_features_is_refused_unless_they_are_as_many_as_the_head_is_wide():
    geometry = Geometry(32, 4, 64, layers=1)
    scheme = build_scheme(POSITIONS["pope"], geometry)
    with pytest.raises(ConfigError, match=r"choose attention\.features=8"):
        build_attention({"kind": "performer", "features": 16}, geometry, scheme)
    build_attention({"kind": "performer", "features": 8}, geometry, scheme)


@pytest.mark.parametrize("length", [1, 2, STRIP - 1, STRIP, STRIP + 1, 300])
@pytest.mark.parametrize("pos", SCHEMES)
def test_flash_is_softmax(pos, length):
    """To 1e-10 in float64, with the gradients of T5's table, FIRE's perceptron and FoX's gates."""
    case = Case(pos, length)
    assert_same(
        case.outputs_and_gradients("flash", attended), case.outputs_and_gradients("softmax", attended)
    )


class BiasAndGates(Scheme):
    """A bias by both positions and gates, which no scheme of the package has together."""

    def pairwise_bias(self, queries, keys):
        return -(queries[:, None] * keys).double().sqrt().expand(self.geometry.heads, -1, -1)

    def log_gates(self, x):
        return -x.square().mean(dim=-1, keepdim=True).mT.expand(-1, self.geometry.heads, -1)


def test_flash_adds_both_a_bias_by_both_positions_and_gates():
    geometry = Geometry(HEADS * HEAD_WIDTH, HEADS, 1000, layers=1)
    scheme, length = BiasAndGates(Options(), geometry), STRIP + 1
    case, results = Case("none", length), []
    for kind in ("flash", "softmax"):
        leaves = [tensor.clone().requires_grad_() for tensor in (case.q, case.k, case.v, case.x)]
        site = Site(scheme, torch.arange(length), scheme.log_gates(leaves[3]))
        output = build_attention({"kind": kind}, geometry, scheme).attend(*leaves[:3], site)
        results.append([output, *torch.autograd.grad(output.square().sum(), leaves)])
    assert_same(*results)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("pos", SCHEMES)
def test_flash_is_softmax_in_the_training_dtypes(pos, dtype):
    """Within 2e-5 in float32 and 2e-2 in bfloat16, whose numbers are 8e-3 apart at 1."""
    case = Case(pos, 200, dtype=dtype)
    results = {}
    for attention in ("flash", "softmax"):
        attend, scheme, whole = parts(pos, attention)
        whole.to(torch.float32)
        positions = whole.place(200, None)
        site = Site(scheme, positions, scheme.log_gates(case.x))
        results[attention] = attend.attend(case.q, case.k, case.v, site)
    assert results["flash"].dtype == dtype
    tolerance = 2e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(results["flash"], results["softmax"], atol=tolerance, rtol=tolerance)


def sizes_kept(pos, attention, length):
    """The numbers of elements of all tensors that autograd keeps for backward."""
    attend, scheme, whole = parts(pos, attention, heads=1, context_length=length)
    case = Case(pos, length, heads=1, batch=1)
    q, k, v = (tensor.requires_grad_() for tensor in (case.q, case.k, case.v))
    site, sizes = Site(scheme, whole.place(length, None), scheme.log_gates(case.x)), []
    with saved_tensors_hooks(lambda tensor: sizes.append(tensor.numel()) or tensor, lambda tensor: tensor):
        attend.attend(q, k, v, site)
    return sizes


@pytest.mark.parametrize("pos", SCHEMES)
def test_flash_keeps_no_square_matrix(pos):
    assert max(sizes_kept(pos, "flash", 4 * STRIP)) < (4 * STRIP) ** 2


@pytest.mark.parametrize(("pos", "attention"), IN_CHUNKS)
def test_linear_keeps_memory_in_proportion_to_length(pos, attention):
    assert sum(sizes_kept(pos, attention, 8192)) < 2.1 * sum(sizes_kept(pos, attention, 4096))


def test_flash_names_the_kernel_that_ran():
    kernels = {}
    for pos in ("none", "rope", "pope", "t5", "alibi", "fox", "fire"):
        attend, scheme, _ = parts(pos, "flash")
        case = Case(pos, 5)
        attend.attend(case.q, case.k, case.v, Site(scheme, torch.arange(5), scheme.log_gates(case.x)))
        kernels[pos] = attend.kernel
    assert kernels == {
        "none": "torch flash (cpu)",
        "rope": "torch flash (cpu)",
        "pope": "torch flash (cpu)",
        "t5": "torch flash, sliding bias (cpu)",
        "alibi": "torch flash, sliding bias (cpu)",
        "fox": "strips",
        "fire": "strips, checkpointed",
    }


@pytest.mark.parametrize("chunk", [16, 48, 64, 256])
@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 1000])
@pytest.mark.parametrize("pos", [pos for pos, attention in IN_CHUNKS if attention == "linear"])
def test_linear_in_chunks_is_the_masked_product(pos, length, chunk):
    """Outputs and every gradient to 1e-10, T5's table included, at any length and chunk size."""
    case = Case(pos, length, heads=2, batch=1)

    def in_chunks(attend, *arguments):
        attend.chunk = chunk
        return attend.attend(*arguments)

    assert_same(case.outputs_and_gradients("linear", in_chunks), case.outputs_and_gradients("linear", masked))


class Everything(Scheme):
    """A rotation, a learned bias with a learned geometric tail, and gates, which no scheme has together."""

    horizon = 5

    def __init__(self, options, geometry):
        super().__init__(options, geometry)
        self.near = nn.Parameter(
            torch.linspace(0, -3, geometry.heads * (self.horizon + 1)).reshape(geometry.heads, -1)
        )
        self.slope = nn.Parameter(torch.linspace(0.01, 0.3, geometry.heads))

    def rotate(self, x, positions):
        return turn(x, 0.1 * positions.double()[:, None] * torch.arange(1, 1 + x.shape[-1] // 2), "half")

    def bias(self, distance):
        last = self.near[:, distance.clamp(max=self.horizon)]
        return last - self.slope[:, None] * (distance - self.horizon).clamp(min=0)

    def tail(self):
        return Tail(self.horizon, -self.slope)

    def log_gates(self, x):
        return -x.square().mean(dim=-1, keepdim=True).mT.expand(-1, self.geometry.heads, -1)


@pytest.mark.parametrize("consecutive", [True, False])
@pytest.mark.parametrize("chunk", [4, 16, 64])
def test_linear_combines_a_rotation_a_learned_bias_and_gates(chunk, consecutive):
    """With the gradients of the near biases and of the decay."""
    length, results = 50, []
    geometry = Geometry(HEADS * HEAD_WIDTH, HEADS, 200, layers=1, consecutive=consecutive)
    scheme = Everything(Options(), geometry).double()
    positions = (
        torch.arange(length) if consecutive else torch.arange(0, 4 * length, 4) + torch.arange(length) % 3
    )
    attend = build_attention(ATTENTIONS["linear"], geometry, scheme)
    attend.chunk = chunk
    case = Case("none", length)
    for how in (attended, masked):
        leaves = [tensor.clone().requires_grad_() for tensor in (case.q, case.k, case.v, case.x)]
        output = how(attend, *leaves[:3], Site(scheme, positions, scheme.log_gates(leaves[3])))
        inputs = [*leaves, scheme.near, scheme.slope]
        results.append([output, *torch.autograd.grad(output.square().sum(), inputs)])
    assert_same(*results)


@pytest.mark.parametrize("pos", ["none", "rope", "pope", "alibi", "t5"])
def test_products_of_bfloat16_summed_in_float32_are_within_its_rounding(pos):
    """As linear attention computes on CUDA without gates; bfloat16 has numbers 2^-7 apart at 1."""
    case, results = Case(pos, 500, dtype=torch.float32), []
    upstream = torch.randn(case.v.shape, generator=torch.Generator().manual_seed(3))
    for half in (None, torch.bfloat16):
        attend, scheme, whole = parts(pos, "linear")
        whole.to(torch.float32)
        leaves = [tensor.clone().requires_grad_() for tensor in (case.q, case.k, case.v)]
        attend.products = half
        output = attend.attend(*leaves, Site(scheme, torch.arange(500)))
        inputs = [*leaves, *scheme.parameters()]
        results.append([output, *torch.autograd.grad(output, inputs, upstream)])
    for exact, rounded in zip(*results, strict=True):
        assert 0 < (rounded - exact).norm() / exact.norm() < 2**-6


@pytest.mark.parametrize("length", [65, 1000])
@pytest.mark.parametrize("pos", [pos for pos, attention in IN_CHUNKS if attention == "performer"])
def test_performer_in_chunks_is_the_masked_product(pos, length):
    case = Case(pos, length, heads=2, batch=1)
    assert_same(
        case.outputs_and_gradients("performer", attended), case.outputs_and_gradients("performer", masked)
    )


@pytest.mark.parametrize("pos", ["alibi", "t5", "fox"])
def test_linear_is_stable_at_length(pos):
    """At 20,000 tokens in float32, where a decay from the start would be below the smallest number."""
    length = 20_000
    case = Case(pos, length, heads=2, batch=1)
    results = []
    for dtype in (torch.float32, torch.float64):
        attend, scheme, whole = parts(pos, "linear", heads=2)
        whole.to(dtype)
        q, k, v, x = (tensor.to(dtype).requires_grad_() for tensor in (case.q, case.k, case.v, case.x))
        output = attend.attend(q, k, v, Site(scheme, torch.arange(length), scheme.log_gates(x)))
        results.append([output, *torch.autograd.grad(output.sum(), [q, k, v])])
    for single, double in zip(*results, strict=True):
        assert torch.isfinite(single).all()
        torch.testing.assert_close(single.double(), double, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("norm", [1, 10, 40, 80])
def test_performer_is_finite_for_keys_of_any_length(norm):
    attend, scheme, _ = parts("none", "performer")
    case = Case("none", 300, dtype=torch.float32)
    attend.to(torch.float32)
    q, k = (norm * each / each.norm(dim=-1, keepdim=True) for each in (case.q, case.k))
    assert torch.isfinite(attend.attend(q.requires_grad_(), k, case.v, Site(scheme, torch.arange(300)))).all()


def test_linears_features_do_not_round_to_nothing():
    attend, _, _ = parts("none", "linear")
    x = torch.tensor([-50.0, -17.0, -1.0, 0.0, 2.0])
    expected = [*torch.tensor([-50.0, -17.0, -1.0, 0.0]).double().exp().tolist(), 3.0]
    assert attend.feature_map(x, True).tolist() == pytest.approx(expected, rel=1e-6)


def test_performers_features_are_drawn_by_the_seed_for_each_layer_and_kept():
    one, again, other = (make_gpt(SCHEMES["none"], ATTENTIONS["performer"], seed=seed) for seed in (0, 0, 1))
    features = [gpt.state_dict()["blocks.0.attention.omega"] for gpt in (one, again, other)]
    assert torch.equal(features[0], features[1])
    assert not torch.equal(features[0], features[2])
    assert not torch.equal(features[0], one.state_dict()["blocks.1.attention.omega"])
    one.blocks[0].attention.draw(torch.Generator().manual_seed(9))
    assert not torch.equal(features[1], one.state_dict()["blocks.0.attention.omega"])


@pytest.mark.parametrize("pos", SCHEMES)
def test_shift_invariance_is_as_the_scheme_says(pos):
    """Content that repeats after 7 tokens gives the score of (i, j) again at (i + 7, j + 7), or does not."""
    gpt = make_gpt(SCHEMES[pos], ATTENTIONS["softmax"])
    tokens = torch.arange(42)[None] % 7
    positions = gpt.scheme.place(42, None)
    embedded = gpt.scheme.embed(gpt.embedding(tokens), positions)
    same = []
    for index, block in enumerate(gpt.blocks):
        scheme, x = gpt.scheme.layer(index), block.norm_attention(embedded)
        q, k, _ = block.query_key_value(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        scores = block.attention.scores(q, k, Site(scheme, positions, scheme.log_gates(x)))
        same.append(torch.allclose(scores[..., 7:, 7:], scores[..., :-7, :-7]))
    assert all(same) == gpt.scheme.shift_invariant


@pytest.mark.parametrize(
    ("pos", "attention"),
    [
        (pos, attention)
        for pos, attention in itertools.product(POSITIONS, ATTENTIONS)
        if any(
            POSITIONS[pos]["scheme"] == SCHEMES[one]["scheme"] for one, works in PAIRS if works == attention
        )
    ],
)
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
