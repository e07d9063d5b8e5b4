"""What others read of the project by form: CITATION.cff and CHANGELOG.md name its version, and no person."""

import re
import tomllib

import yaml

from support.commands import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_has_what_its_format_needs_and_the_projects_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert citation["message"]
    assert citation["type"] == "software"
    for each in (citation, citation["preferred-citation"]):
        assert each["title"].startswith("poslab: ")
        assert each["authors"] == [{"name": "The poslab authors"}]
        assert (each["version"], each["license"]) == (PROJECT["version"], PROJECT["license"])


def test_the_changelog_begins_with_the_projects_version():
    headings = re.findall(r"^## \[(.+?)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0][0] == PROJECT["version"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d|Unreleased", date) for _, date in headings)
