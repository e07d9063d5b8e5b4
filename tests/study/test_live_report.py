"""The report of a running study: when it is written, its header, and what remains after a stop."""

from pathlib import Path

import pytest
from rich.console import Console

from poslab.study.display.live_report import SECONDS, LiveReport
from poslab.study.display.study_view import Entry, State, StudyDisplay
from support.display import Clock
from support.records import write_run

EVIL = "<script>alert(1)</script>"
RELOAD = 'http-equiv="refresh"'


def live(tmp_path: Path, state: State, title: str = "rope") -> tuple[LiveReport, Clock]:
    directory = write_run(tmp_path / "runs", "one", study="made_up")
    entries = [Entry(title, directory, state), Entry(title, directory.with_name("two"), "running")]
    clock = Clock()
    display = StudyDisplay(Console(quiet=True), entries)
    return LiveReport("made_up", tmp_path / "runs", tmp_path / "reports", display, clock), clock


def written(report: LiveReport) -> str:
    """Return the page that it writes now."""
    report.path.unlink(missing_ok=True)
    report.update()
    if report._writer is not None:
        report._writer.join()
    return report.path.read_text() if report.path.exists() else ""


def test_it_is_the_report_with_the_study_s_state_and_reloads_itself(tmp_path):
    report, _ = live(tmp_path, "done", EVIL)
    page = written(report)
    assert RELOAD in page
    assert "2 runs: 1 done, 1 running" in page
    assert 'id="reproduce"' in page
    assert EVIL not in page


def test_it_is_written_once_a_run_is_done_and_not_too_often(tmp_path):
    report, _ = live(tmp_path, "running")
    assert not written(report)
    report, clock = live(tmp_path, "done")
    assert written(report)
    assert not written(report)
    clock.now += SECONDS
    assert written(report)


def test_the_report_of_a_stopped_study_stays_without_a_state(tmp_path):
    report, clock = live(tmp_path, "done")
    written(report)
    report.__exit__(KeyboardInterrupt, None, None)
    page = report.path.read_text()
    assert RELOAD not in page
    assert "1 running" not in page
    assert 'id="reproduce"' in page
    assert not report.path.with_name("summary.csv").exists()
    clock.now += SECONDS
    assert not written(report)  # by a write that had begun


@pytest.mark.parametrize("in_the_way", ["reports", "runs/made_up/study.json"])
def test_failing_writes_and_reads_stop_nothing(tmp_path, in_the_way):
    report, _ = live(tmp_path, "done")
    (tmp_path / in_the_way).write_text("in the way")
    report.update()
    report.__exit__(None, None, None)
