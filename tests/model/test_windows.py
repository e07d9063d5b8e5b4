"""Windows by layer: every attention against plain sums over the keys of the window, in float64."""

import pytest
import torch

from poslab.config.schema import ConfigError
from poslab.model.attention import Attention, Site, build_attention
from poslab.model.kernels import flex
from poslab.model.positions import Geometry, build_scheme
from poslab.model.positions.schedule import Schedule, ScheduleOptions
from support.attentions import HEAD_WIDTH, Case, assert_same, attended, masked, parts
from support.models import ATTENTIONS, POSITIONS, SCHEMES, make_gpt

FIRST_KINDS = ["none", "rope", "pope", "alibi", "t5", "kerple", "fox", "fire"]
SCHEMES_OF_EACH_KIND = [*FIRST_KINDS, "carope", "inkling", "wall", "stick_breaking", "path"]


def works(pos, attention):
    try:
        parts(pos, attention, window=5)
    except ConfigError:
        return False
    return True


PAIRS = [
    (pos, attention) for pos in SCHEMES_OF_EACH_KIND for attention in ATTENTIONS if works(pos, attention)
]


# Whole, at the edges of both windows and of a strip, and the last: where a window's first key changes.
QUERIES = [0, 1, 4, 5, 6, 63, 64, 65, 89, 90, 91, 127, 128, 129, 134]


def over_the_window(window):
    """Return the sums over the keys that each of QUERIES sees, cut out before they are formed."""

    def attend(attention, q, k, v, site):
        rows = []
        for query in QUERIES:
            first = max(0, query - window + 1)
            seen = slice(first, query + 1)
            gates = None if site.log_gates is None else site.log_gates[..., seen]
            angles = None if site.angles is None else site.angles[..., seen, :]
            bias = site.content_bias
            bias = None if bias is None else bias._replace(r=bias.r[..., seen, :])
            between = None if site.transitions is None else site.transitions[..., seen, :]
            inside = Site(site.scheme, site.positions[seen], gates, angles, bias, between)
            parts_of = (tensor[..., seen, :] for tensor in (q, k, v))
            rows.append(masked(attention, *parts_of, inside)[..., -1:, :])
        return torch.cat(rows, dim=-2)

    return attend


def attended_there(attention, q, k, v, site):
    return attended(attention, q, k, v, site)[..., QUERIES, :]


def by_turns(pos, attention):
    """Each scheme and each attention with both windows, though not each pair."""
    return (5, 90)[(SCHEMES_OF_EACH_KIND.index(pos) + list(ATTENTIONS).index(attention)) % 2]


@pytest.mark.parametrize(("pos", "attention", "window"), [(*pair, by_turns(*pair)) for pair in PAIRS])
def test_a_window_is_attention_over_its_keys(pos, attention, window):
    """By turns inside of one strip and chunk, and over more; T5's horizon is outside of both windows."""
    case = Case(pos, 135, batch=1, window=window)
    assert_same(
        case.outputs_and_gradients(attention, attended), case.outputs_and_gradients(attention, masked)
    )
    assert_same(
        case.outputs_and_gradients(attention, attended_there),
        case.outputs_and_gradients(attention, over_the_window(window)),
    )


@pytest.mark.parametrize("pos", ["none", "alibi", "t5"])
def test_windows_of_long_sequences(pos):
    """Past the blocks of short sequences, where keys out of reach are left out."""
    case = Case(pos, 600, batch=1, window=200)
    assert_same(case.outputs_and_gradients("flash", attended), case.outputs_and_gradients("flash", masked))


def test_a_window_longer_than_the_text_is_none():
    inside, whole = Case("rope", 40, window=40), Case("rope", 40)
    for attention in ("flash", "linear", "performer", "softmax"):
        assert_same(
            inside.outputs_and_gradients(attention, attended),
            whole.outputs_and_gradients(attention, attended),
        )
    attend, scheme, _ = parts("rope", "flash", window=40)
    attend.attend(inside.q, inside.k, inside.v, Site(scheme, torch.arange(40)))
    assert attend.kernel == "torch flash (cpu)"


@pytest.mark.parametrize(("attention", "pos"), [("softmax", "none"), ("flash", "alibi"), ("flash", "none")])
def test_both_sides_of_a_window(attention, pos):
    geometry = Geometry(24, 3, 64, layers=1, causal=False, window=4)
    scheme = build_scheme(SCHEMES[pos], geometry)
    attend = build_attention(ATTENTIONS[attention], geometry, scheme)
    assert isinstance(attend, Attention)
    q, k, v = torch.randn(3, 1, 3, 20, 8, dtype=torch.float64)
    site = Site(scheme, torch.arange(20))
    mixed, weights = attend.attend(q, k, v, site), attend.weights(q, k, site)
    distance = torch.arange(20)[:, None] - torch.arange(20)
    assert ((weights > 0) == (distance.abs() < 4)).all()
    torch.testing.assert_close(mixed, weights @ v)


@pytest.mark.parametrize("attention", ["flash", "softmax", "linear"])
def test_no_token_reaches_past_the_windows_of_all_layers(attention):
    """Four layers of 5 tokens: a token changes the logits of itself and of 16 tokens after it, no more."""
    pos = {"scheme": "schedule", "layers": ["near"], "schemes": {}}
    pos["schemes"]["near"] = SCHEMES["rope"] | {"window": 5}
    gpt = make_gpt(pos, ATTENTIONS[attention])
    tokens = torch.arange(40)[None] % 50
    changed = tokens.clone()
    changed[0, 10] = 49
    differs = (gpt(tokens) - gpt(changed)).abs().amax(dim=(0, 2)) > 1e-12
    assert differs.nonzero().flatten().tolist() == list(range(10, 10 + 4 * 4 + 1))


def test_a_window_beside_a_scheme_of_schemes_is_that_of_all_of_them():
    def schedule(**section):
        return {"scheme": "schedule", "layers": ["one"], "schemes": {"one": section}}

    def of_layers(section):
        scheme = build_scheme(section, Geometry(24, 3, 64, layers=2))
        return [scheme.layer(index).geometry.window for index in range(2)]

    rope = SCHEMES["rope"]
    around = {"scheme": "log_scaled", "rule": "beam", "strength": 0.1, "start": 8}
    for inside in (schedule(**rope), around | {"of": schedule(**rope)}, around | {"of": rope}):
        assert of_layers(schedule(**inside, window=5)) == [5, 5]
    assert of_layers(schedule(**schedule(**rope, window=3), window=5)) == [3, 3]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("pos", ["none", "t5", "fire", "fox", "inkling"])
def test_flex_attention_in_a_window(pos):
    case = Case(pos, flex.BLOCK + 2, batch=1, window=50)
    attend, scheme, whole = parts(pos, "softmax", window=50)
    site, given = Site.of(scheme, whole.place(case.length, None), case.x), (case.q, case.k, case.v)
    with torch.no_grad():
        assert_same([flex.attend(*given, site, HEAD_WIDTH**-0.5)], [masked(attend, *given, site)])


@pytest.mark.parametrize("window", [0, -1, 2.5, "32", True])
def test_what_no_window_can_be_is_refused(window):
    schemes = {"near": SCHEMES["rope"] | {"window": window}}
    options = ScheduleOptions(layers=["near"], schemes=schemes)
    with pytest.raises(ConfigError, match=r"schemes\.near\.window"):
        Schedule(options, Geometry(32, 4, 64, layers=4))


def test_the_record_has_each_layers_window():
    scheme = build_scheme(POSITIONS["as_command_a"], Geometry(32, 4, 64, layers=4))
    assert scheme.section()["schemes"]["near"]["window"] == 64
    assert "window" not in scheme.section()["schemes"]["far"]
    assert [scheme.layer(index).geometry.window for index in range(4)] == [64, 64, 64, None]
    assert build_scheme(scheme.section(), scheme.geometry).section() == scheme.section()
