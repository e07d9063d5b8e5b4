"""The page in reports/claims is what the command makes now, and the README shows its verdicts."""

import csv
import re
import tomllib
from html import unescape
from importlib.metadata import version
from pathlib import Path

import pytest

from poslab.commands.claims import main
from support.commands import ROOT

KEPT = ROOT / "reports" / "claims"
PICTURE = re.compile(rb'(?<=src=")data:[^"]*')


def drawn_alike() -> bool:
    """Whether the Matplotlib is the pinned one: another may draw other bytes of the same figure."""
    pinned = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["constraint-dependencies"]
    return any(each == f"matplotlib=={version('matplotlib')}" for each in pinned)


def made(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the command writes from the studies kept in git."""
    reports = tmp_path_factory.mktemp("reports")
    for study in (ROOT / "reports").glob("*/records.tar.xz"):
        (reports / study.parent.name).symlink_to(study.parent)
    runs = tmp_path_factory.mktemp("runs")
    assert main([f"runs={runs}", f"reports={reports}"]) == 0
    return reports / "claims"


def test_the_kept_page_is_what_the_command_makes(page: Path) -> None:
    new, kept = made(page), made(KEPT)
    assert new.keys() == kept.keys()
    for name, content in new.items():
        if drawn_alike():
            assert content == kept[name], f"{name}: run python claims.py and keep what it writes"
        elif not name.endswith(".svg"):
            assert PICTURE.sub(b"", content) == PICTURE.sub(b"", kept[name]), name


def test_the_page_fetches_nothing_and_every_link_leads_somewhere(page: Path) -> None:
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


def test_the_table_has_a_row_a_claim(page: Path) -> None:
    with (page / "claims.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["number"] for row in rows if not row["part"]] == [str(number) for number in range(1, 47)]
    assert all(value for row in rows for column, value in row.items() if column != "part")
    lettered = [(row["number"], row["part"]) for row in rows]
    assert sorted(lettered, key=lambda pair: (int(pair[0]), pair[1])) == lettered
    assert len(set(lettered)) == len(rows)


def test_the_readme_shows_the_verdicts_of_the_page() -> None:
    shown = re.search(r"<!-- claims -->\n(.*?)<!-- /claims -->", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    asked = re.search(
        r"## What people ask first\n\n.*?\n.*?\n(.*?)\n\n", (KEPT / "claims.md").read_text(), re.DOTALL
    )
    assert asked is not None
    expected = [tuple(line.strip("| ").split(" | ")[:3:2]) for line in asked[1].splitlines()]
    cells = [cell for line in shown[1].splitlines()[2:] for cell in line.strip("| ").split(" | ")]
    assert list(zip(cells[::2], cells[1::2], strict=True)) == expected


def test_the_report_of_a_study_called_claims_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "claims" / "facts.csv"
    report.parent.mkdir()
    report.write_text("key,value\n")
    assert main([f"reports={tmp_path}"]) == 2
    assert "is the report of a study" in capsys.readouterr().err
    assert made(tmp_path) == {"claims/facts.csv": b"key,value\n"}


def test_a_wrong_argument_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claim=3"]) == 2
    assert main(["reports=no/such/folder"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("claims.py: ") for line in lines)
