"""Pictures of schemes follow their formulas, and entries of libraries are found in their source."""

import math
from pathlib import Path

import pytest
import transformers

from dev.pages.picture import picture
from dev.pages.shipped import SHIPPED
from support.commands import ROOT

MODULES = {path.stem for path in (ROOT / "src/poslab/model/positions").glob("[!_]*.py")}


def test_a_bias_and_a_rotation_are_drawn_by_their_formulas():
    alibi = picture("alibi", ["alibi"], [])
    for head, line in enumerate(alibi.lines.values(), 1):
        assert all(value == pytest.approx(-(2.0 ** (-2 * head)) * t, abs=1e-3) for t, value in line)
    for t, value in picture("rope", ["rope"], []).lines["rope"]:
        mean = sum(math.cos(t * 10_000 ** (-pair / 16)) for pair in range(16)) / 16
        assert value == pytest.approx(mean, abs=1e-3)


def test_the_entries_of_transformers_are_found_in_its_source():
    models = Path(transformers.__file__).parent / "models"
    assert SHIPPED.keys() <= MODULES
    for entries in SHIPPED.values():
        for entry in entries:
            assert entry.words in (models / entry.file).read_text(), entry
