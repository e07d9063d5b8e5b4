"""The page of a study that is being made: what it shows, whom it escapes, and where it leads at the end."""

import re
from pathlib import Path

import pytest
from rich.console import Console

from poslab.report.listed import LOCAL, list_pages
from poslab.study.display.live_page import LivePage, Shown, lead_on
from poslab.study.display.study_view import Entry, StudyDisplay
from support.records import write_run

EVIL = "<script>alert(1)</script>"


def _page(tmp_path: Path, question: str = "") -> tuple[LivePage, list[Shown]]:
    runs = [
        Shown(
            Entry(f"rope / {name}", write_run(tmp_path / "runs", name, seed=seed), "waiting"), "rope", "flash"
        )
        for seed, name in enumerate(("one", "two"))
    ]
    display = StudyDisplay(Console(quiet=True), [each.entry for each in runs])
    return LivePage(tmp_path / "reports", "made_up", question, runs, display), runs


def test_it_shows_states_losses_and_curves_and_is_listed(tmp_path: Path) -> None:
    page, runs = _page(tmp_path, "Which is best?")
    runs[0].entry.state, runs[1].entry.state = "done", "running"
    page.update()
    text = page.path.read_text()
    assert 'http-equiv="refresh"' in text
    assert "2 runs: 1 done, 1 running" in text
    assert text.count("<polyline") == 2
    assert "2.000" in text  # the last validation loss
    listed = (tmp_path / "reports" / LOCAL).read_text()
    assert "Which is best?" in listed
    assert 'href="live/made_up.html"' in listed


def test_every_point_of_a_curve_lies_in_the_drawing(tmp_path: Path) -> None:
    page, _ = _page(tmp_path)
    page.update()
    text = page.path.read_text()
    width, height = map(float, re.search(r'viewBox="-8 -8 (\S+) (\S+)"', text).groups())  # type: ignore[union-attr]
    points = [
        tuple(map(float, one.split(",")))
        for line in re.findall(r'points="([^"]+)"', text)
        for one in line.split()
    ]
    assert len(points) > 100
    assert all(0 <= x <= width - 16 and 0 <= y <= height - 16 for x, y in points)


def test_names_and_questions_are_no_markup(tmp_path: Path) -> None:
    page, runs = _page(tmp_path, EVIL)
    runs[0].entry.title = runs[0].entry.note = EVIL
    runs[0].entry.state = "failed"
    page.update()
    assert EVIL not in page.path.read_text()
    assert EVIL not in (tmp_path / "reports" / LOCAL).read_text()


def test_at_the_end_it_leads_on_to_the_report_and_is_listed_no_more(tmp_path: Path) -> None:
    page, _ = _page(tmp_path)
    page.update()
    report = tmp_path / "reports" / "made_up" / "index.html"
    lead_on(tmp_path / "reports", "made_up", report)
    assert 'content="0; url=../made_up/index.html"' in page.path.read_text()
    assert "Running" not in (tmp_path / "reports" / LOCAL).read_text()


def test_of_a_stopped_study_nothing_is_left(tmp_path: Path) -> None:
    page, _ = _page(tmp_path)
    page.update()
    page.remove()
    assert list((tmp_path / "reports" / "live").iterdir()) == []
    assert "Running" not in (tmp_path / "reports" / LOCAL).read_text()


def test_a_study_that_was_killed_is_not_called_running_for_long(tmp_path: Path) -> None:
    page, _ = _page(tmp_path)
    page.clock = lambda: 1_000_000.0  # long ago
    page.update()
    assert "Running" not in list_pages(tmp_path / "reports")[LOCAL]


@pytest.mark.parametrize(
    "content", ["", "step,tokens\n1", "step,tokens,validation_nll,validation_tokens\n1,x,2,0\n"]
)
def test_half_written_losses_are_left_out(tmp_path: Path, content: str) -> None:
    page, runs = _page(tmp_path)
    (runs[0].entry.directory / "metrics.csv").write_text(content)
    page.update()
    assert page.path.read_text().count("<polyline") == 1


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    page, _ = _page(tmp_path)
    (tmp_path / "reports").write_text("in the way")
    page.update()
    page.remove()
