"""The study of commands without study=: its report is on the runs of the last one; others are listed."""

from inspect import signature
from pathlib import Path

import pytest

import poslab
from poslab.analysis.results import gather
from poslab.record.study_list import UNNAMED, enlist
from poslab.report.sections.contents import document
from poslab.report.write import write_report
from support.commands import ROOT, read
from support.records import terminal_rows, write_run

FIRST, SECOND = "python train.py -m pos=rope,alibi", "python train.py -m pos=t5,rope"


def give(runs: Path, command: str, schemes: list[str], study: str = UNNAMED, **wishes: str) -> None:
    """Write what a command writes: the missing runs of these schemes, and the study's list."""
    for pos in schemes:
        write_run(runs, pos, pos=pos, study=study)
    enlist(runs / study, schemes, command, **wishes)


@pytest.fixture
def home(tmp_path):
    give(tmp_path / "runs", FIRST, ["rope", "alibi"], reference="alibi", question="Which one?")
    give(tmp_path / "runs", SECOND, ["t5", "rope"])
    return tmp_path


def test_the_runs_of_the_last_command_are_compared_and_earlier_ones_listed(home):
    """A run of both commands is compared; the choices of the first command are dropped."""
    report = write_report(UNNAMED, home / "runs", home / "reports")
    assert [row["scheme"] for row in terminal_rows(report.document)] == ["t5", "rope"]
    assert [row["run"] for row in read(report.directory / "summary.csv")] == ["t5", "rope"]
    (earlier,) = read(report.directory / "earlier.csv")
    assert (earlier["run"], earlier["arm"], earlier["status"]) == ("alibi", "alibi", "done")
    assert float(earlier["sliding_8x"]) == pytest.approx(2.06)
    page = report.page.read_text()
    title = "t5 and rope, one run each"
    for shown in (f"<title>{title}", f"<h1>{title}</h1>", "study=NAME", SECOND):
        assert shown in page
    assert page.index("<summary>Earlier runs</summary>") > page.index('id="made"')
    assert not any(gone in page for gone in (FIRST, "Which one?"))
    assert (report.directory / "report.md").read_text().startswith(f"# {title}\n")
    # The first command again.
    give(home / "runs", FIRST, ["rope", "alibi"])
    report = write_report(UNNAMED, home / "runs", home / "reports")
    assert [row["scheme"] for row in terminal_rows(report.document)] == ["rope", "alibi"]
    assert [row["run"] for row in read(report.directory / "earlier.csv")] == ["t5"]
    assert FIRST in report.page.read_text()


def test_in_a_named_study_the_runs_of_all_commands_count(tmp_path):
    give(tmp_path, FIRST, ["rope", "alibi"], study="mine", reference="rope width 64")
    give(tmp_path, SECOND, ["t5", "rope"], study="mine")
    results = gather("mine", tmp_path, None)
    assert "rope width 64 is no arm of this study; compared with rope." in results.reference_warning
    made = document(results)
    assert [row["scheme"] for row in terminal_rows(made)] == ["rope", "alibi", "t5"]
    assert (made.title, "earlier" in made.sheets) == ("mine", False)


def test_the_default_study_is_that_of_the_configuration():
    assert f"\nstudy: {UNNAMED} " in (ROOT / "conf" / "config.yaml").read_text()
    assert signature(poslab.read).parameters["study"].default == UNNAMED
