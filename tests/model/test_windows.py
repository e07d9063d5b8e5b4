"""Windows by layer, in float64. Every pair's formula in a window: test_attention.py."""

from itertools import cycle

import pytest
import torch

from poslab.model.attention import Site
from poslab.model.positions import Geometry, build_scheme
from support.attentions import Case, parts
from support.models import POSITIONS, SCHEMES, pairs_that_work, ropes_once

WINDOWED = ropes_once(pairs_that_work(Geometry(24, 3, 1000, layers=4, window=5)))


@pytest.mark.parametrize(("window", "pair"), list(zip(cycle([5, 90]), WINDOWED)))
def test_a_fast_form_equals_the_plain_one_in_a_window(window, pair):
    """Within one strip and chunk, and over several; T5's horizon is outside both windows."""
    pos, attention = pair
    Case(pos, 135, batch=1, window=window).check(attention)


@pytest.mark.parametrize("pos", ["none", "alibi", "t5"])
def test_a_fast_form_skips_keys_outside_the_window(pos):
    """For sequences longer than the short blocks."""
    Case(pos, 600, batch=1, window=200).check("flash")


def test_a_window_longer_than_the_text_uses_the_kernel_without_one():
    case = Case("rope", 40, window=40)
    case.check("flash")
    attend, scheme, _ = parts("rope", "flash", window=40)
    attend.attend(case.q, case.k, case.v, Site(scheme, torch.arange(40)))
    assert attend.kernel == "torch flash (cpu)"


def test_the_window_of_a_scheme_of_schemes_is_that_of_all_of_them():
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


@pytest.mark.parametrize("length", [64, 128])
def test_windows_and_starts_of_files_follow_the_training_length(length):
    """The record has them in tokens, so that they do not change with another L."""
    scheme = build_scheme(POSITIONS["as_command_a"], Geometry(32, 4, length, layers=4))
    window = length // 2
    assert scheme.section()["schemes"]["near"]["window"] == window
    assert "window" not in scheme.section()["schemes"]["far"]
    assert [scheme.layer(index).geometry.window for index in range(4)] == [window] * 3 + [None]
    for pos in ("as_command_a", "as_llama4", "log_scaled"):
        recorded = build_scheme(POSITIONS[pos], Geometry(32, 4, length, layers=4)).section()
        assert build_scheme(recorded, Geometry(32, 4, 1000, layers=4)).section() == recorded
        last = recorded["schemes"]["none"] if pos == "as_llama4" else recorded
        assert last.get("start", length) == length
