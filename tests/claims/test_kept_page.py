"""The page in reports/claims is what the command makes now, and the README shows its verdicts."""

import re
from html import unescape
from pathlib import Path

import pytest

import poslab
from claims.__main__ import main
from claims.contract import Verdict
from claims.page import BELIEVED, Entry
from claims.write import write
from support.commands import ROOT

KEPT = ROOT / "reports" / "claims"


Written = tuple[Path, tuple[Entry, ...]]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder that the command writes from the studies kept in git, and its entries."""
    reports = tmp_path_factory.mktemp("reports")
    for study in (ROOT / "reports").glob("*/records.tar.xz"):
        (reports / study.parent.name).symlink_to(study.parent)
    runs = tmp_path_factory.mktemp("runs")
    _, entries, _ = write(runs, reports)
    return reports / "claims", entries


def test_the_claims_are_those_of_the_list_each_with_a_verdict_and_its_reason(written):
    assert [one.claim.number for one in written[1]] == list(range(1, 57))
    for one in written[1]:
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
    assert [one.claim.number for one in written[1] if one.claim.question] == sorted(BELIEVED)


def test_a_claim_that_waits_for_a_study_says_by_which_command_it_is_made(written):
    folder = ROOT / "sweeps"
    sweeps = {str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml")}
    for one in written[1]:
        for study in one.judgement.missing:
            assert study.command.startswith("python train.py -m ")
            named = re.search(r"sweep=([\w/]+)", study.command)
            assert named is None or named[1] in sweeps
            assert study.study == (re.search(r"study=(\w+)", study.command) or named)[1].split("/")[-1]
            assert "roughly" in study.duration


def test_the_kept_page_is_what_the_command_makes(written):
    page, _ = written
    names = [{path.name for path in folder.rglob("*") if path.is_file()} for folder in (page, KEPT)]
    assert names[0] - {"index.html"} == names[1] - {"index.html"}  # git has claims.md
    for name in ("claims.csv", "claims.md"):
        again = f"{name}: run python -m claims and keep what it writes"
        assert (page / name).read_text() == (KEPT / name).read_text(), again


def test_the_page_fetches_nothing_and_every_link_leads_somewhere(written):
    page, _ = written
    text = (page / "index.html").read_text()
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', text)
    assert "default-src 'none'" in unescape(text)
    anchors = set(re.findall(r'id="([^"]+)"', text))
    for target in re.findall(r'(?:href)="([^"]+)"', text):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        else:
            assert (KEPT / target).is_file(), target
    for target in re.findall(r"\]\(([^)\s]+)\)", (page / "claims.md").read_text()):
        assert (KEPT / target).is_file(), target


def test_the_readme_shows_the_verdicts_of_the_page():
    shown = re.search(r"<!-- claims -->\n(.*?)<!-- /claims -->", (ROOT / "README.md").read_text(), re.DOTALL)
    asked = re.search(
        r"## What people ask first\n\n.*?\n.*?\n(.*?)\n\n", (KEPT / "claims.md").read_text(), re.DOTALL
    )
    expected = [tuple(line.strip("| ").split(" | ")[:3:2]) for line in asked[1].splitlines()]
    cells = [cell for line in shown[1].splitlines()[2:] for cell in line.strip("| ").split(" | ")]
    assert list(zip(cells[::2], cells[1::2], strict=True)) == expected


def test_the_report_of_a_study_called_claims_is_not_written_over_and_arguments_are_checked(tmp_path, capsys):
    report = tmp_path / "claims" / "facts.csv"
    report.parent.mkdir()
    report.write_text("key,value\n")
    for wrong, said in (
        (f"reports={tmp_path}", "is the report of a study"),
        ("claim=3", "claims: "),
        ("reports=no/such/folder", "claims: "),
    ):
        assert main([wrong]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line
    assert [path.name for path in report.parent.iterdir()] == ["facts.csv"]


def test_claims_use_only_the_public_names_of_poslab():
    for path in (ROOT / "claims").rglob("*.py"):
        text = path.read_text()
        assert not re.search(r"^ *(?:import|from) poslab\.", text, re.MULTILINE), path
        for names in re.findall(r"^ *from poslab import (\(.*?\)|.*?$)", text, re.MULTILINE | re.DOTALL):
            assert {*re.findall(r"\w+", names)} <= {*poslab.__all__}, path
