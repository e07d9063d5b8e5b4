"""The files of conf/pos and conf/attention: every field has an effect, none is hidden, all models differ."""

import typing
from functools import cache
from typing import Any, Literal

import pytest
import torch

from poslab.config.schema import ConfigError
from poslab.model.attention import build_attention, mixer_class
from poslab.model.positions import Geometry, build_scheme
from poslab.model.verification import check_scheme
from support.models import ATTENTIONS, POSITIONS, SCHEMES, make_gpt


def other_values(annotation: Any, value: Any) -> list[Any]:
    """Return other values of a field; the test uses the first that the arm accepts."""
    if typing.get_origin(annotation) is Literal:
        return [choice for choice in typing.get_args(annotation) if choice != value]
    if isinstance(value, bool):
        return [not value]
    if value is None:
        return [16]
    if isinstance(value, list):
        return [[each + 1 for each in value]] if isinstance(value[0], int) else [value[::-1]]
    if isinstance(value, dict) and "kind" in value:
        return [{"kind": "linear"}]
    if isinstance(value, dict):  # an inner section with another value of one number
        return [
            {**value, key: other}
            for key, inner in value.items()
            if isinstance(inner, dict | float)
            for other in other_values(None, inner)
        ]
    return [value / 2, value * 2] if isinstance(value, float | int) else []


def fields():
    """Yield every field of every file in conf/pos and conf/attention except the one that names its module."""
    geometry = Geometry(64, 2, 64, layers=4)
    for name, section in POSITIONS.items():
        scheme = build_scheme(section, geometry)
        for key in section.keys() - {"scheme", "rate"}:  # a rate changes the training only
            yield "pos", name, key, scheme.options_class.model_fields[key].annotation
    for name, section in ATTENTIONS.items():
        for key in section.keys() - {"kind"}:
            yield "attention", name, key, mixer_class(section).options_class.model_fields[key].annotation


@torch.no_grad()
def logits(pos, attention):
    """Return logits at 2 L of a model with L = 64; some schemes differ only past L or past `start`."""
    if "start" in pos:
        pos = {**pos, "start": (pos["start"] or 128) // 4}
    layers = 4 if "schedule" in str(pos) or attention["kind"] == "hybrid" else 1
    gpt = make_gpt(pos, attention, width=64, heads=2, layers=layers)
    length = min(128, gpt.scheme.max_length or 128)
    return gpt(torch.randint(0, 50, (1, 128), generator=torch.Generator().manual_seed(0))[:, :length])


def with_section(group, section):
    if group == "pos":
        return logits(section, ATTENTIONS["softmax"])
    return logits(SCHEMES["none"], section)  # which every mixer accepts


@cache
def logits_of_arm(group, name):
    return with_section(group, (POSITIONS if group == "pos" else ATTENTIONS)[name])


@pytest.mark.parametrize(("group", "name", "key", "annotation"), sorted(fields(), key=str))
def test_every_field_of_every_arm_changes_the_model(group, name, key, annotation):
    arm = (POSITIONS if group == "pos" else ATTENTIONS)[name]
    for value in other_values(annotation, arm[key]):
        try:
            changed = with_section(group, {**arm, key: value})
        except ConfigError:
            continue
        assert not torch.allclose(logits_of_arm(group, name), changed, atol=1e-6)
        return
    pytest.fail(f"no other value of {key} was accepted")


@pytest.mark.parametrize("pos", POSITIONS)
def test_no_two_arms_are_the_same_model(pos):
    logits = logits_of_arm("pos", pos)
    for other in POSITIONS.keys() - {pos}:
        others = logits_of_arm("pos", other)
        length = min(logits.shape[1], others.shape[1])
        assert not torch.allclose(logits[:, :length], others[:, :length], atol=1e-6), other


@pytest.mark.parametrize("pos", POSITIONS)
def test_a_scheme_has_a_rate_if_it_has_parameters(pos):
    scheme = build_scheme(POSITIONS[pos], Geometry(64, 2, 64, layers=4))
    assert set(scheme.rates()) == set(scheme.parameters())
    assert bool(scheme.rates()) == ("'rate'" in str(POSITIONS[pos]))  # also of an inner scheme


@pytest.mark.parametrize("pos", SCHEMES)
def test_a_scheme_passes_the_checks_for_external_schemes(pos):
    """One check: every fast form equals the plain one, with the gradients of all parameters."""
    outcomes = {outcome.title: outcome for outcome in check_scheme(SCHEMES[pos], ATTENTIONS)}
    assert [outcome for outcome in outcomes.values() if outcome.passed is False] == []
    # These depend on random draws or on the text.
    invariant = outcomes["its logits change with a shift as `shift_invariant` says"].note != ""
    assert invariant == (pos in ("bipe_alibi", "fope", "rope_randomised"))


def test_the_checks_refuse_a_hybrid_only_if_a_model_does():
    """T5's table serves the layers with attention; FoX has gates in the other layers, too."""
    hybrid = {"hybrid": ATTENTIONS["hybrid"]}
    notes = {pos: list(check_scheme(SCHEMES[pos], hybrid))[-1].note for pos in ("t5", "fox")}
    assert notes["t5"] == "it has no matrix of weights"
    assert notes["fox"].startswith("refused: pos.scheme=fox has parameters for each layer")


def build(group, section):
    geometry = Geometry(32, 4, 64, layers=4)
    if group == "pos":
        return build_scheme(section, geometry)
    return build_attention(section, geometry, build_scheme(SCHEMES["none"], geometry))


@pytest.mark.parametrize("group", ["pos", "attention"])
def test_arms_have_no_hidden_defaults(group):
    """A missing field is an error, so that a file shows everything that has an effect."""
    for section in (POSITIONS if group == "pos" else ATTENTIONS).values():
        for key in section.keys() - {"scheme", "kind"}:
            with pytest.raises(ConfigError, match=f"{group}.{key} is missing"):
                build(group, {name: value for name, value in section.items() if name != key})
        with pytest.raises(ConfigError, match="is not a setting"):
            build(group, {**section, "extra": 1})
