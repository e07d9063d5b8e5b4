"""A geometry that is not causal: every pair beside plain sums, and what means nothing there is refused."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers.models.t5.modeling_t5 import T5Attention

from poslab.config.schema import ConfigError, Options, PairError
from poslab.model.attention import Attention, Mixer, Site, build_attention, flash
from poslab.model.gpt import GPT
from poslab.model.positions import Geometry, Scheme, build_scheme
from support.attentions import Case, assert_same, attended, masked, parts, sizes_kept, turned
from support.models import ATTENTIONS, POSITIONS, SCHEMES, each_scheme_once, pairs_that_work

TWO_SIDED = {"heads": 4, "context_length": 64, "causal": False}
GEOMETRY = Geometry(width=32, layers=4, **TWO_SIDED)
BY_CONTENT = {"fox", "selective_rope", "inkling", "cope", "wall", "stick_breaking", "path"}
ONE_SIDED = BY_CONTENT | {"bipe_alibi", "xpos", "log_scaled", "ssmax"}
PAIRS = pairs_that_work(GEOMETRY)


def built(pos, attention):
    """The scheme of a layer with random parameters, and its attention."""
    attend, scheme, _ = parts(pos, attention, **TWO_SIDED)
    return scheme, attend


def plain(attend, q, k, v, site):
    """The sums as they are written, over all keys on both sides."""
    scheme, positions = site.scheme, site.positions
    if attend.form == "O(L)":
        q, k = attend.feature_map(q, True), attend.feature_map(k, False)
        of_denominator = q @ k.mT
    else:
        scale = q.shape[-1] ** -0.5
        q, k = scheme.logit_features(q), scheme.logit_features(k)
    q = turned(scheme.rotate_queries(q, positions), site.angles)
    k = turned(scheme.rotate_keys(k, positions), site.angles)
    bias = scheme.pairwise_bias(positions, positions)
    distance = (positions[:, None] - positions).abs()
    if attend.form == "O(L)":
        weights = torch.ones_like(of_denominator) if bias is None else bias.exp()
        weights = weights * (distance < (scheme.geometry.window or torch.inf))
        below = (of_denominator * weights).sum(dim=-1, keepdim=True)
        return q @ k.mT * weights / below @ v
    scores = q @ k.mT * scale
    if scheme.geometry.window is not None:
        scores = scores.masked_fill(distance >= scheme.geometry.window, -torch.inf)
    return (scores if bias is None else scores + bias).softmax(dim=-1) @ v


@pytest.mark.parametrize(
    ("pos", "attention", "length"),
    [*((*pair, 70) for pair in PAIRS), *(("rope", attention, 1) for attention in dict(map(reversed, PAIRS)))],
)
def test_every_pair_is_its_formula_with_gradients(pos, attention, length):
    if length > (build_scheme(SCHEMES[pos], GEOMETRY).max_length or length):
        length = 64
    case = Case(pos, length, **TWO_SIDED)
    ours = case.outputs_and_gradients(attention, attended)
    assert_same(ours, case.outputs_and_gradients(attention, plain))
    assert_same(ours, case.outputs_and_gradients(attention, masked))


@pytest.mark.parametrize("chunk", [16, 64, 500])
@pytest.mark.parametrize("pos", ["alibi", "t5", "as_command_a"])
def test_linear_attention_in_chunks_is_its_formula_far_past_the_horizon(pos, chunk):
    def in_chunks(attend, *given):
        attend.chunk = chunk
        return attend.attend(*given)

    case = Case(pos, 300, **TWO_SIDED)  # T5's horizon is below 128
    ours = case.outputs_and_gradients("linear", in_chunks)
    torch.testing.assert_close(ours, case.outputs_and_gradients("linear", plain), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("pos", ["alibi", "t5"])
def test_linear_attention_on_both_sides_keeps_no_square_matrix(pos):
    assert max(sizes_kept(pos, "linear", 4000, causal=False)) < 100 * 4000


def test_t5_has_the_buckets_of_the_transformers_library_on_both_sides():
    scheme, _ = built("t5", "softmax")
    keys = torch.arange(-300, 301)
    buckets = T5Attention._relative_position_bucket(
        keys, bidirectional=True, num_buckets=32, max_distance=128
    )
    expected = scheme.bucket_bias[buckets].T * 8**0.5
    torch.testing.assert_close(scheme.pairwise_bias(torch.tensor([0]), keys)[:, 0], expected)
    with pytest.raises(ConfigError, match=r"pos.buckets in multiples of 4"):
        build_scheme({**SCHEMES["t5"], "buckets": 30}, GEOMETRY)


def test_t5_never_reads_the_bucket_of_keys_no_token_after_the_query():
    scheme, attend = built("t5", "linear")
    with torch.no_grad():
        scheme.bucket_bias[16] = 20.0  # 57 nats in a sum that is taken back would leave nothing of float32
    q, k, v = torch.randn(3, 1, 4, 70, 8, generator=torch.Generator().manual_seed(0))
    site = Site(scheme.float(), torch.arange(70))
    output = attend.attend(q, k, v, site)
    torch.testing.assert_close(output, attend.weights(q, k, site) @ v)
    (gradient,) = torch.autograd.grad(output.sum(), scheme.bucket_bias)
    assert not gradient[16].any()
    assert gradient[[0, 17]].all()


@pytest.mark.parametrize("hook", ["log_gates", "content_bias"])
def test_linear_attention_takes_no_gates_and_no_bias_of_a_query_on_both_sides(hook):
    class Read(Scheme):
        two_sided = True

    setattr(Read, hook, lambda *given: None)
    with pytest.raises(PairError, match=r"linear attention does not take on both sides.*attention=softmax"):
        build_attention(ATTENTIONS["linear"], GEOMETRY, Read(Options(), GEOMETRY))


@pytest.mark.parametrize("pos", ["alibi", "kerple", "fire"])
def test_a_bias_is_by_the_distance_to_either_side(pos):
    scheme, _ = built(pos, "softmax")
    before, same, after = scheme.pairwise_bias(torch.tensor([5]), torch.tensor([1, 5, 9])).unbind(dim=-1)
    assert torch.equal(before, after)
    assert (before != same).all()


@pytest.mark.parametrize(("pos", "attention"), each_scheme_once(PAIRS))
def test_a_later_token_counts_for_an_earlier_one(pos, attention):
    scheme = build_scheme(SCHEMES[pos], GEOMETRY)
    layers = [build_attention(ATTENTIONS[attention], GEOMETRY, scheme.layer(i)) for i in range(4)]
    gpt = GPT(50, GEOMETRY, scheme, layers)
    gpt.initialise(0)
    gpt.double()
    tokens = torch.randint(0, 50, (1, 40), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[0, 25] = (changed[0, 25] + 1) % 50
    difference = (gpt(tokens) - gpt(changed)).abs().amax(dim=-1)[0]
    assert (difference > 1e-9).all()
    torch.testing.assert_close(gpt(tokens, last=3), gpt(tokens)[:, -3:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("pos", ["rope", "pope", "alibi", "fire"])
def test_flash_is_softmax_in_the_training_dtypes(pos, dtype):
    scheme, flash = built(pos, "flash")
    _, softmax = built(pos, "softmax")
    stream = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 60, 8, generator=stream).to(dtype)
    site = Site(scheme.float(), torch.arange(60))
    tolerance = 2e-5 if dtype == torch.float32 else 2e-2
    ours, expected = flash.attend(q, k, v, site), softmax.attend(q, k, v, site)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, expected, atol=tolerance, rtol=tolerance)
    assert flash.kernel == "torch attention, two-sided (cpu)"


def test_what_has_a_meaning_on_both_sides_is_served():
    served = {pos for pos, _ in PAIRS}
    assert SCHEMES.keys() - served == ONE_SIDED
    # Mixers without attention are causal.
    assert {attention for _, attention in PAIRS} == {"flash", "linear", "performer", "softmax"}
    linear = {pos for pos, attention in PAIRS if attention == "linear"}
    assert {"rope", "none", "learned", "sinusoidal", "pope", "alibi", "t5"} <= linear
    assert not linear & {"kerple", "fire"}


@pytest.mark.parametrize(
    ("pos", "attention", "message"),
    [
        (SCHEMES["fox"], "softmax", r"pos.scheme=fox is causal.*choose.*rope or alibi"),
        (SCHEMES["kerple"], "linear", r"pos.scheme=kerple never becomes geometric.*choose attention=flash"),
        (
            {"scheme": "randomised", "stretch": 2, "of": SCHEMES["xpos"]},
            "flash",
            r"pos.scheme=xpos is causal",
        ),
    ],
)
def test_what_has_none_is_refused_when_it_is_built_and_says_what_to_choose(pos, attention, message):
    with pytest.raises(ConfigError, match=message) as refused:
        build_attention(ATTENTIONS[attention], GEOMETRY, build_scheme(pos, GEOMETRY).layer(0))
    assert isinstance(refused.value, PairError)


def test_the_parts_of_others_are_one_sided_unless_they_say_otherwise():
    class Other(Attention):
        form = "exact"

    rope = build_scheme(POSITIONS["rope"], GEOMETRY)
    for kind in (Other, Mixer):
        with pytest.raises(PairError, match=r"is causal.*choose attention=flash or softmax"):
            kind(Options(), GEOMETRY, rope)
    with pytest.raises(PairError, match="is causal"):
        Scheme(Options(), GEOMETRY)


def test_on_cuda_a_mask_is_in_the_precision_of_the_queries(monkeypatch):
    """On tensors without numbers. cuDNN reads a float32 mask as bfloat16, and another kernel refuses it."""
    seen = []

    def noted(q, k, v, attn_mask, scale):
        seen.append({x.dtype for x in (q, k, v, attn_mask)})
        return v

    monkeypatch.setattr(flash, "scaled_dot_product_attention", noted)
    with FakeTensorMode(), torch.device("cuda"):
        scheme = build_scheme(SCHEMES["alibi"], GEOMETRY)
        attend = build_attention(ATTENTIONS["flash"], GEOMETRY, scheme)
        q, k, v = torch.empty(3, 2, 4, 40, 8, dtype=torch.bfloat16)
        mixed = attend.attend(q, k, v, Site(scheme, torch.arange(40)))
    assert seen == [{torch.float32}]
    assert mixed.dtype == torch.bfloat16
