"""The site has every page of docs/ and the files that they link to; its command checks the links."""

import json
import re

import pytest

from dev.site import MENU, dead_links, links, llms, notebook, stage
from support.commands import ROOT


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    pages = tmp_path_factory.mktemp("pages")
    return pages, stage(pages)


def test_every_page_of_docs_is_on_the_site_with_what_it_links_to(staged):
    pages, names = staged
    assert {str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")} <= {*names}
    assert {f"docs/{page}.md" for menu in MENU.values() for page in menu} <= {*names}
    for name in names:
        page = pages / name
        assert [link for link in links(page.read_text()) if not (page.parent / link).is_file()] == [], name


def test_llms_txt_lists_every_page_with_a_sentence(staged):
    pages, names = staged
    listed = re.findall(r"^- \[.+\]\((.+?)\): (.{20,})$", llms(pages, names), re.MULTILINE)
    assert [name for name, _ in listed] == [name for name in names if name.startswith("docs/")]


def test_a_notebook_becomes_a_page_with_its_code():
    cells = [{"cell_type": "markdown", "source": ["# A"]}, {"cell_type": "code", "source": ["a = 1"]}]
    assert notebook(json.dumps({"cells": cells})) == "# A\n\n```python\na = 1\n```\n"


def test_a_dead_link_is_reported(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "a.html").write_text(
        '<a href="b.html"></a><a href="c.html#no"></a><a href="b/"></a><img src="d.png">'
    )
    (tmp_path / "c.html").write_text('<h1 id="yes"></h1><a href="#yes"></a><a href="a.html"></a>')
    (tmp_path / "b" / "index.html").write_text('<a href="https://example.org/"></a>')
    assert dead_links(tmp_path) == ["a.html: b.html", "a.html: c.html#no", "a.html: d.png"]
