"""docs/api.md describes every public name by its docstring."""

import re

import poslab
from dev.api_page import page
from support.commands import ROOT


def test_the_page_is_up_to_date_with_the_docstrings():
    """`python dev/api_page.py > docs/api.md` rewrites it."""
    assert (ROOT / "docs" / "api.md").read_text() == page()


def test_every_public_name_and_no_other_has_a_section_with_text():
    sections = re.split(r"^## poslab\.", page(), flags=re.MULTILINE)[1:]
    assert {section.split("\n")[0] for section in sections} == set(poslab.__all__)
    for section in re.split(r"^##+ ", page(), flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        assert len(text.rpartition("```")[2].strip()) > 20, title
