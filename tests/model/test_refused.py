"""Parts of a model that cannot work are refused in one line that says what to choose."""

from itertools import cycle

import pytest

from poslab.config.schema import BlockOptions, ConfigError, PairError
from poslab.model.attention import build_attentions
from poslab.model.gpt import GPT
from poslab.model.positions import Geometry, build_scheme
from support.models import ATTENTIONS, POSITIONS

TWO_SIDED = {"causal": False}
HYBRID = ATTENTIONS["hybrid"]
RECURRENT = {"layers": ["recurrent"], "mixers": {"recurrent": HYBRID["mixers"]["recurrent"]}}
MIXERS = ["retention", "gated_linear", "gated_delta"]
# These change logits, which a recurrent state does not have.
OF_LOGITS = ["t5", "alibi", "kerple", "fire", "fox", "wall", "path", "stick_breaking", "cope", "inkling"]
OF_LOGITS += ["ssmax", "pope", "selective_rope", "carope", "repo"]


def around(scheme, inside):
    return {**POSITIONS[scheme], "of": POSITIONS[inside]}


def schedule(**changes):
    return {**POSITIONS["rope_none"], **changes}


def ropes(**changes):
    return schedule(layers=["rope"], schemes={"rope": {**POSITIONS["rope"], **changes}})


def hybrid(**mixers):
    return {**HYBRID, "mixers": {**HYBRID["mixers"], **mixers}}


PAIRS = [
    ("kerple", "linear", {}, r"pos\.scheme=kerple.*choose attention=flash"),
    ("fire", "performer", {}, r"pos\.scheme=fire.*choose attention=flash"),
    ("ssmax", "linear", {}, "flash or softmax"),
    ("inkling", "linear", {"window": 16}, "attention=flash or softmax"),
    ("cope", "flash", {}, "attention=softmax$"),
    ("stick_breaking", "linear", {}, "attention=softmax$"),
    ("path", "flash", {}, "attention=softmax$"),
    ("wall", "retention", {}, "attention=flash, softmax or linear$"),
    ("stick_breaking", "softmax", {"sinks": True}, r"leave model\.sinks out"),
    ("rope", "linear", {"sinks": True}, "choose attention=flash"),
    ("rope", "performer", {"sinks": True}, "choose attention=flash"),
    *((pos, {"kind": "performer", "features": 16}, {}, "features=8") for pos in ("pope", "carope")),
    ("fox", "softmax", TWO_SIDED, r"pos\.scheme=fox is causal.*choose.*rope or alibi"),
    (around("rope_randomised", "xpos"), "flash", TWO_SIDED, r"pos\.scheme=xpos is causal"),
    ("kerple", "linear", TWO_SIDED, "never becomes geometric.*choose attention=flash"),
    ("none", "flash", {**TWO_SIDED, "canon": ["a"]}, "objective=causal"),
    *(
        (pos, name, {}, f"pos.scheme={pos}.*kind={name}.*choose")
        for pos, name in zip(OF_LOGITS, cycle(MIXERS))
    ),
    ("xpos", "gated_delta", {}, "choose pos=rope or none, or attention=gated_linear"),
    *(("rope", name, {"window": 8}, "does not support windows") for name in MIXERS),
    *(("rope", name, TWO_SIDED, "is causal") for name in MIXERS),
    ("none", "retention", {"query_groups": 1}, "is not an attention"),
    ("none", "retention", {"qk_norm": True}, "is not an attention"),
    ("none", "retention", {"output_gate": True}, "is not an attention"),
    ("none", "retention", {"canon": ["b"]}, "is not an attention"),
    ("fox", HYBRID, {}, r"pos\.scheme=fox.*attention\.kind=gated_delta use none of them: give it"),
    *((pos, HYBRID, {}, "use no scheme: give it") for pos in ("rope_none", "as_command_a", "as_gpt_oss")),
    (around("log_scaled", "rope_none"), HYBRID, {}, "use no scheme: give it"),
    ("rope", {**HYBRID, **RECURRENT}, {}, "or choose pos=none"),
]
# Under softmax attention.
SECTIONS = [
    ({"scheme": "rotery"}, {}, "alibi, bipe, carope, cope, fire"),
    *((pos, {"width": 15, "heads": 3}, "even") for pos in ("rope", "sinusoidal", "carope")),
    *((pos, {"width": 8}, "leaves the fastest pair") for pos in ("rope_ntk", "rope_dynamic")),
    *((pos, {"context_length": 6}, "pos=none") for pos in ("fope", "hope")),
    ("hope", {"context_length": 7000}, "pos=rope"),
    ({**POSITIONS["t5"], "buckets": 30}, TWO_SIDED, r"pos\.buckets in multiples of 4"),
    (schedule(layers=["rope", "alibi"]), {}, "names 'alibi'"),
    (schedule(layers=["rope"]), {}, "'none', which no layer uses"),
    (schedule(layers=[]), {}, "at least 1"),
    (schedule(layers=["one"], schemes={"one": POSITIONS["learned"]}), {}, "acts on the input"),
    (ropes(bass=1), {}, r"schemes\.rope\.bass"),
    *((ropes(window=window), {}, r"schemes\.rope\.window") for window in (0, -1, 2.5, "32", True)),
    *(
        (around("rope_randomised", inside), {}, "choose")
        for inside in ("none", "fox", "carope", "rope_randomised", "rope_dynamic", "ssmax")
    ),
]
# Under pos=none.
MIXED = [
    *((name, {"width": 9, "heads": 3}, "odd width 3: choose an even one") for name in MIXERS),
    ({**HYBRID, "layers": ["recurrent", "attentoin"]}, {}, "attention.mixers has attention, recurrent"),
    ({**HYBRID, "layers": ["recurrent"]}, {}, "has 'attention', which no layer uses"),
    (hybrid(attention={"kind": "flahs"}), {}, "attention.mixers.attention.kind='flahs'"),
    (hybrid(attention={"kind": "performer"}), {}, "features is missing"),
]


def build(pos, attention, **more):
    """Build a GPT; `more` is for the geometry and the block."""
    block = {key: more.pop(key) for key in [*more] if key in BlockOptions.model_fields}
    geometry = Geometry(**{"width": 32, "heads": 4, "context_length": 64, "layers": 4, **more})
    scheme = build_scheme(POSITIONS[pos] if isinstance(pos, str) else pos, geometry)
    section = ATTENTIONS[attention] if isinstance(attention, str) else attention
    mixers = build_attentions(section, geometry, [scheme.layer(index) for index in range(4)])
    return GPT(50, geometry, scheme, mixers, BlockOptions(**block))


@pytest.mark.parametrize(
    ("error", "pos", "attention", "more", "message"),
    [
        *((PairError, *case) for case in PAIRS),
        *((ConfigError, pos, "softmax", more, message) for pos, more, message in SECTIONS),
        *((ConfigError, "none", attention, more, message) for attention, more, message in MIXED),
    ],
)
def test_impossible_parts_are_refused_with_what_to_choose(error, pos, attention, more, message):
    """A study continues without a refused pair."""
    with pytest.raises(ConfigError, match=message) as refused:
        build(pos, attention, **more)
    assert type(refused.value) is error
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("pos", "attention"),
    [("log_scaled", HYBRID), ("none", {**HYBRID, **RECURRENT}), ("xpos", "gated_linear")],
)
def test_similar_parts_that_work_are_built(pos, attention):
    assert build(pos, attention)
