"""The study of commands without a name: its report is on the runs of the last one, with the others listed."""

from inspect import signature
from pathlib import Path

import pytest

import poslab
from poslab.commands.report import main
from poslab.record.reader import ReportError
from poslab.record.study_list import UNNAMED, enlist
from poslab.report.render.terminal import show
from poslab.report.write import write_report
from support.commands import ROOT
from support.records import read, write_run

pytestmark = pytest.mark.usefixtures("undrawn")

FIRST, SECOND = "python train.py -m pos=rope,alibi", "python train.py -m pos=t5,rope"


def give(runs: Path, command: str, schemes: list[str], study: str = UNNAMED, **wishes: str) -> None:
    """What a command writes: runs of these schemes that are not there yet, and the study's list."""
    for pos in schemes:
        write_run(runs, pos, pos=pos, study=study)
    enlist(runs / study, schemes, command, **wishes)


@pytest.fixture
def home(tmp_path):
    give(tmp_path / "runs", FIRST, ["rope", "alibi"], reference="alibi", question="Which one?")
    give(tmp_path / "runs", SECOND, ["t5", "rope"])
    return tmp_path


def test_the_terminal_says_that_a_reference_is_no_arm(tmp_path, capsys):
    give(tmp_path / "runs", FIRST, ["rope", "alibi"], reference="rope width 64")
    show(write_report(UNNAMED, tmp_path / "runs", tmp_path / "reports"))
    assert "rope width 64" in capsys.readouterr().out


def test_the_runs_of_the_last_command_are_compared_and_earlier_ones_listed(home):
    """A run that both commands asked for is compared; nothing that the first one wished for stays."""
    report = write_report(UNNAMED, home / "runs", home / "reports")
    assert [row["scheme"] for row in report.document.terminal] == ["t5", "rope"]
    assert report.document.title == "t5 and rope, one run each"
    assert [row["run"] for row in read(report.directory / "summary.csv")] == ["t5", "rope"]
    (earlier,) = read(report.directory / "earlier.csv")
    assert (earlier["run"], earlier["arm"], earlier["status"]) == ("alibi", "alibi", "done")
    assert float(earlier["sliding_8x"]) == pytest.approx(2.06)
    page = report.page.read_text()
    for place in ("<title>t5 and rope, one run each", "<h1>t5 and rope, one run each</h1>"):
        assert place in page
    assert page.index("<summary>Earlier runs</summary>") > page.index('id="made"')
    assert "earlier=true" in page
    assert SECOND in page
    assert FIRST not in page
    assert "Which one?" not in page
    assert (report.directory / "report.md").read_text().startswith("# t5 and rope, one run each\n")


def test_the_first_command_again_is_reported_as_at_first(home):
    give(home / "runs", FIRST, ["rope", "alibi"])
    report = write_report(UNNAMED, home / "runs", home / "reports")
    assert [row["scheme"] for row in report.document.terminal] == ["rope", "alibi"]
    assert [row["run"] for row in read(report.directory / "earlier.csv")] == ["t5"]
    page = report.page.read_text()
    assert FIRST in page
    assert SECOND not in page


def test_all_runs_are_reported_together_where_that_is_asked_for(home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    assert main([f"study={UNNAMED}"]) == 0
    assert (home / "reports" / UNNAMED / "earlier.csv").is_file()
    assert main([f"study={UNNAMED}", "earlier=true"]) == 0
    folder = home / "reports" / UNNAMED
    assert {row["run"] for row in read(folder / "summary.csv")} == {"rope", "alibi", "t5"}
    assert not (folder / "earlier.csv").exists()
    (again,) = [row["value"] for row in read(folder / "facts.csv") if row["key"] == "report_command"]
    assert " earlier=true " in again
    give(home / "runs", FIRST, ["rope", "alibi"], study="mine")
    capsys.readouterr()
    assert main(["study=mine", "earlier=true"]) == 2
    assert "all runs count anyway" in capsys.readouterr().err


def test_in_a_study_with_a_name_the_runs_of_all_commands_count(tmp_path):
    runs = tmp_path / "runs"
    give(runs, FIRST, ["rope", "alibi"], study="mine", reference="alibi")
    give(runs, SECOND, ["t5", "rope"], study="mine")
    report = write_report("mine", runs, tmp_path / "reports")
    assert [row["scheme"] for row in report.document.terminal] == ["rope", "alibi", "t5"]
    assert report.document.title == "mine"
    assert "rope, alibi and t5, one run each" in report.page.read_text()
    assert not (report.directory / "earlier.csv").exists()


def test_without_a_finished_run_of_the_last_command_the_earlier_ones_are_named(home):
    write_run(home / "runs", "fire", pos="fire", study=UNNAMED, status="failed", reason="out of memory")
    enlist(home / "runs" / UNNAMED, ["fire"], "python train.py pos=fire")
    with pytest.raises(ReportError, match="earlier=true for the 3 runs of earlier commands"):
        write_report(UNNAMED, home / "runs", home / "reports")


def test_the_study_without_a_name_is_that_of_the_configuration():
    assert f"\nstudy: {UNNAMED} " in (ROOT / "conf" / "config.yaml").read_text()
    assert signature(poslab.read).parameters["study"].default == UNNAMED
