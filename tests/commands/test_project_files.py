"""The form of project files: hashes of pinned versions, CITATION.cff, CHANGELOG.md, names in the code."""

import re
import tomllib

import pytest
import yaml

from dev.words import files, pronouns
from support.commands import ROOT

FOLDER = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ABOUT, UV = PROJECT["project"], PROJECT["tool"]["uv"]
LINE = re.compile(
    r"#.*|-r base\.txt|(?P<pin>[a-z0-9._-]+==[\w.!+]+)(?: ; [^\\]+)? \\"
    r"| {4}--hash=sha256:(?P<hash>[0-9a-f]{64})(?: \\)?"
)


def pins(name: str) -> dict[str, list[str]]:
    """Return the hashes of each version in a file, which may have no other lines such as options."""
    found: dict[str, list[str]] = {}
    for line in (FOLDER / name).read_text().splitlines():
        match = LINE.fullmatch(line)
        assert match is not None, line
        if match["pin"]:
            found[match["pin"]] = []
        elif match["hash"]:
            found[list(found)[-1]].append(match["hash"])
    return found


@pytest.mark.parametrize(
    ("files", "versions"),
    [
        (("base.txt", "all.txt", "flash.txt"), UV["constraint-dependencies"]),
        (("build.txt",), UV["build-constraint-dependencies"]),
    ],
)
def test_every_pinned_version_has_its_hashes(files, versions):
    """`.ci/hashes` rewrites them."""
    hashes = {pin: found for name in files for pin, found in pins(name).items()}
    assert set(hashes) == {version.partition(" ;")[0] for version in versions}
    assert all(hashes.values())
    assert all(len(set(found)) == len(found) for found in hashes.values())


def test_pytorch_without_cuda_has_the_same_version():
    ((version, hashes),) = pins("cpu.txt").items()
    assert len(hashes) == 1
    assert version in pins("all.txt")
    assert f"pip install {version} --index-url INDEX" in (ROOT / "docs" / "installing.md").read_text()
    for name in ("all.txt", "cpu.txt"):
        assert "\n-r base.txt\n" in (FOLDER / name).read_text()


def test_build_and_install_tools_are_pinned():
    (backend,) = PROJECT["build-system"]["requires"]
    assert backend in pins("build.txt")
    (installer,) = pins("uv.txt")
    assert f"\n{installer.replace('==', '=')}\n" in (ROOT / ".ci/hashes").read_text()
    assert "pip install --quiet --require-hashes -r requirements/uv.txt" in (ROOT / ".ci/run").read_text()


def test_the_citation_is_valid_and_has_the_projects_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert citation["message"]
    assert citation["type"] == "software"
    for each in (citation, citation["preferred-citation"]):
        assert each["title"].startswith("poslab: ")
        assert each["authors"] == [{"name": "The poslab authors"}]
        assert (each["version"], each["license"]) == (ABOUT["version"], ABOUT["license"])


def test_the_changelog_begins_with_the_projects_version():
    headings = re.findall(r"^## \[(.+?)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0][0] == ABOUT["version"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d|Unreleased", date) for _, date in headings)


def test_names_in_the_code_are_not_pronouns():
    """`python dev/words.py src` lists their files."""
    assert not {name for path in files(["src"], ".py") for name in pronouns(path.read_text())}
