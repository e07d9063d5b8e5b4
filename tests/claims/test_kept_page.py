"""The README shows the verdicts of the page; the command refuses wrong arguments."""

import re

import poslab
from claims.__main__ import main
from support.commands import ROOT

KEPT = ROOT / "reports" / "claims"


def test_the_readme_shows_the_verdicts_of_the_page():
    shown = re.search(r"<!-- claims -->\n(.*?)<!-- /claims -->", (ROOT / "README.md").read_text(), re.DOTALL)
    table = re.search(r"\| Question .*?\n.*?\n(.*?)\n\n", (KEPT / "claims.md").read_text(), re.DOTALL)
    expected = [tuple(line.strip("| ").split(" | ")[:3:2]) for line in table[1].splitlines()]
    cells = [cell for line in shown[1].splitlines()[2:] for cell in line.strip("| ").split(" | ")]
    assert list(zip(cells[::2], cells[1::2], strict=True)) == expected


def test_the_report_of_a_study_named_claims_is_not_overwritten_and_arguments_are_checked(tmp_path, capsys):
    report = tmp_path / "claims" / "facts.csv"
    report.parent.mkdir()
    report.write_text("key,value\n")
    for wrong, message in (
        (f"reports={tmp_path}", "a study named claims"),
        ("claim=3", "claims: "),
        ("reports=no/such/folder", "claims: "),
    ):
        assert main([wrong]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line
    assert [path.name for path in report.parent.iterdir()] == ["facts.csv"]


def test_claims_use_only_the_public_names_of_poslab():
    for path in (ROOT / "claims").rglob("*.py"):
        text = path.read_text()
        assert not re.search(r"^ *(?:import|from) poslab\.", text, re.MULTILINE), path
        for names in re.findall(r"^ *from poslab import (\(.*?\)|.*?$)", text, re.MULTILINE | re.DOTALL):
            assert {*re.findall(r"\w+", names)} <= {*poslab.__all__}, path
