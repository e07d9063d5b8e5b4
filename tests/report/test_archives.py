"""Reports, pages of docs/ and claims in git are up to date with the archived records.

Each archive is read once for all of them, which takes most of the time.
"""

import re
import shlex
from functools import cache
from html import unescape
from xml.etree import ElementTree

import pytest

import poslab
from claims.contract import Verdict
from claims.page import BELIEVED
from claims.write import write
from dev.pages import archived, pages
from poslab.commands.report import main
from poslab.library.studies import Study
from poslab.record.archive import ARCHIVE, archived_studies
from poslab.report.sections.contents import document
from poslab.report.write import write_document
from support.commands import ROOT, read
from support.records import contents

REPORTS, DOCS = ROOT / "reports", ROOT / "docs"
KEPT = REPORTS / "claims"
BY_HAND = {"page.png"}  # a picture of the page, for the README
IN_EACH = {"answer.png", "facts.csv", "report.md"}
MODULES = {path.stem for path in (ROOT / "src/poslab/model/positions").glob("[!_]*.py")}

results = cache(archived.results_of)


@cache
def page(study):
    return document(results(study, REPORTS))


def of_archive(study, **folders):
    """Replace `poslab.read`, to reuse the document."""
    found = Study(results(study, REPORTS))
    vars(found)["_document"] = page(study)
    return found


@pytest.fixture(scope="module", autouse=True)
def _forgotten():
    """Free the records of all archives, which take a gigabyte."""
    yield
    results.cache_clear()
    page.cache_clear()


@pytest.fixture(scope="module")
def written():
    """All pages by path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archived, "results_of", results)
        return pages()


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """The folder that the command writes from the studies in git, and its entries."""
    reports = tmp_path_factory.mktemp("reports")
    for study in archived_studies(REPORTS):
        (reports / study).symlink_to(REPORTS / study)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(poslab, "read", of_archive)
        _, entries, _ = write(tmp_path_factory.mktemp("runs"), reports)
    return reports / "claims", entries


@pytest.mark.parametrize("study", archived_studies(REPORTS))
def test_a_report_in_git_is_that_of_its_records(study, tmp_path):
    """Every fact, and every header and row of a table."""
    stored, again = REPORTS / study, write_document(page(study), tmp_path).directory
    assert {*contents(again)} >= {*contents(stored)} - BY_HAND - {ARCHIVE} >= IN_EACH
    facts, known = (
        [(row["key"], row["value"]) for row in read(folder / "facts.csv")] for folder in (again, stored)
    )
    for (key, value), (old_key, old) in zip(facts, known, strict=True):
        assert key == old_key
        assert value == old or float(value) == pytest.approx(float(old), rel=1e-12), key
    lines = [
        re.findall("^[#|].*", (folder / "report.md").read_text(), re.MULTILINE) for folder in (again, stored)
    ]
    assert [pair for pair in zip(*lines, strict=True) if pair[0] != pair[1]] == []


@pytest.mark.parametrize("study", ["convergence", "recall"])
def test_the_command_in_a_report_writes_it(study, tmp_path, monkeypatch):
    """Without the run directories."""
    monkeypatch.chdir(tmp_path)
    (command,) = [
        row["value"] for row in read(REPORTS / study / "facts.csv") if row["key"] == "report_command"
    ]
    assert command.startswith("python report.py ")
    assert main([*shlex.split(command)[2:], f"runs={REPORTS}"]) == 0
    again = contents(tmp_path / "reports" / study)
    assert again == contents(write_document(page(study), tmp_path / "straight").directory)


def test_the_pages_are_those_of_the_records(written):
    """`python -m dev.pages` rewrites them."""
    again = "run python -m dev.pages"
    assert {f"schemes/{path.name}" for path in (DOCS / "schemes").iterdir()} <= written.keys(), again
    for name, text in written.items():
        if name.endswith(".md"):
            assert (DOCS / name).read_text() == text, f"{name}: {again}"
        else:  # the last digit of numbers in pictures may differ between processors
            assert (DOCS / name).is_file(), f"{name}: {again}"


def test_every_scheme_is_linked_from_the_page_of_schemes_and_pictures_are_small(written):
    for module in MODULES:
        assert f"(schemes/{module}.md)" in (DOCS / "schemes.md").read_text()
    pictures = [text for name, text in written.items() if name.endswith(".svg")]
    assert max(map(len, pictures)) < 8_000
    assert {ElementTree.fromstring(text).tag for text in pictures} == {"{http://www.w3.org/2000/svg}svg"}


def test_all_claims_are_listed_each_with_a_verdict_and_its_reason(judged):
    assert [one.claim.number for one in judged[1]] == list(range(1, 57))
    for one in judged[1]:
        claim, judgement = one.claim, one.judgement
        words = (claim.statement, *claim.sources, claim.prediction, claim.method, claim.better)
        assert all(words), claim.number
        assert len(judgement.why) > 20, claim.number
        assert judgement.value, claim.number
        assert "control" not in judgement.value, (claim.number, judgement.why)
        if judgement.verdict in (Verdict.HOLDS, Verdict.REFUTED):
            assert claim.exact, claim.number
        if judgement.verdict in (Verdict.HOLDS_HERE, Verdict.REFUTED_HERE):
            assert judgement.setting is not None
            assert re.search(r"of width .*, L = \d+, .* per parameter\).*, \d+ seeds$", judgement.setting)
            assert "±" in judgement.value or "[" in judgement.value
    assert [one.claim.number for one in judged[1] if one.claim.question] == sorted(BELIEVED)


def test_a_claim_that_waits_for_a_study_names_its_command(judged):
    folder = ROOT / "sweeps"
    sweeps = {str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml")}
    for one in judged[1]:
        for study in one.judgement.missing:
            assert study.command.startswith("python train.py -m ")
            named = re.search(r"sweep=([\w/]+)", study.command)
            assert named is None or named[1] in sweeps
            assert study.study == (re.search(r"study=(\w+)", study.command) or named)[1].split("/")[-1]
            assert "roughly" in study.duration


def test_the_page_in_git_is_what_the_command_writes(judged):
    written_to, _ = judged
    names = [{path.name for path in folder.rglob("*") if path.is_file()} for folder in (written_to, KEPT)]
    assert names[0] - {"index.html"} == names[1] - {"index.html"}  # git has claims.md
    for name in ("claims.csv", "claims.md"):
        again = f"{name}: run python -m claims and keep what it writes"
        assert (written_to / name).read_text() == (KEPT / name).read_text(), again


def test_the_page_fetches_nothing_and_every_link_is_valid(judged):
    written_to, _ = judged
    text = (written_to / "index.html").read_text()
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', text)
    assert "default-src 'none'" in unescape(text)
    anchors = set(re.findall(r'id="([^"]+)"', text))
    for target in re.findall(r'(?:href)="([^"]+)"', text):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        else:
            assert (KEPT / target).is_file(), target
    for target in re.findall(r"\]\(([^)\s]+)\)", (written_to / "claims.md").read_text()):
        assert (KEPT / target).is_file(), target
