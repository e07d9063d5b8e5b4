"""The cards of schemes, the zoo and the gallery are what code and archived studies give."""

import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
import transformers

from dev.pages import pages
from dev.pages.picture import picture
from dev.pages.shipped import SHIPPED
from support.commands import ROOT

MODULES = {path.stem for path in (ROOT / "src/poslab/model/positions").glob("[!_]*.py")}
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def written():
    """All pages by their paths: ten seconds, since they rest on the records of every archived study."""
    return pages()


def test_the_pages_are_those_of_the_records(written):
    """`python -m dev.pages` writes them again."""
    again = "run python -m dev.pages"
    assert {f"schemes/{path.name}" for path in (DOCS / "schemes").iterdir()} <= written.keys(), again
    for name, text in written.items():
        if name.endswith(".md"):
            assert (DOCS / name).read_text() == text, f"{name}: {again}"
        else:  # numbers of pictures may differ in their last digit between processors
            assert (DOCS / name).is_file(), f"{name}: {again}"


def test_every_scheme_has_a_card_that_says_what_was_measured_or_that_nothing_was(written):
    for module in MODULES:
        card = written[f"schemes/{module}.md"]
        measured = card.partition("## What poslab measured")[2]
        assert ("Nothing: no archived study has it" in measured) != ("± " in measured or "| 1 |" in measured)
        assert f"({module}.md)" in written["schemes/index.md"]
        for page in (written["zoo.md"], (DOCS / "schemes.md").read_text()):
            assert f"(schemes/{module}.md)" in page
    pictures = [text for name, text in written.items() if name.endswith(".svg")]
    assert max(map(len, pictures)) < 8_000
    assert {ElementTree.fromstring(text).tag for text in pictures} == {"{http://www.w3.org/2000/svg}svg"}


def test_a_bias_and_a_rotation_are_drawn_by_their_formulas():
    alibi = picture("alibi", ["alibi"], [])
    for head, line in enumerate(alibi.lines.values(), 1):
        assert all(value == pytest.approx(-(2.0 ** (-2 * head)) * t, abs=1e-3) for t, value in line)
    for t, value in picture("rope", ["rope"], []).lines["rope"]:
        mean = sum(math.cos(t * 10_000 ** (-pair / 16)) for pair in range(16)) / 16
        assert value == pytest.approx(mean, abs=1e-3)


def test_who_ships_a_scheme_is_seen_in_the_source_of_the_transformers_library():
    models = Path(transformers.__file__).parent / "models"
    assert SHIPPED.keys() <= MODULES
    for entries in SHIPPED.values():
        for entry in entries:
            assert entry.words in (models / entry.file).read_text(), entry
