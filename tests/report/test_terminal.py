"""The table of arms in a terminal: no line is too long, and omitted columns are named."""

import pytest
from rich.console import Console

from poslab.analysis.palette import COLOURS, SCHEMES
from poslab.report.render.terminal import LEFT_OUT, show, terminal_table
from poslab.report.write import Report, write_report
from support.commands import ROOT
from support.records import terminal_rows


def shown(
    report: Report, columns: int, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]
) -> str:
    """Return what is printed in a terminal with this number of columns."""
    patch.setenv("COLUMNS", str(columns))
    capture.readouterr()
    show(report)
    return capture.readouterr().out


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Reports of archived studies: one with six arms, and one with ten and long labels."""
    folder, archives = tmp_path_factory.mktemp("kept"), ROOT / "reports"
    studies = ("extrapolation", "mixers")
    return {study: write_report(study, folder / "none", folder, archives=archives) for study in studies}


@pytest.mark.parametrize("columns", [60, 80, 132])
@pytest.mark.parametrize("study", ["extrapolation", "mixers"])
def test_no_line_is_longer_than_the_terminal(study, columns, kept, monkeypatch, capsys):
    report: Report = kept[study]
    text = shown(report, columns, monkeypatch, capsys)
    lines = [line for line in text.splitlines() if "/" not in line or "─" in line]
    assert max(map(len, lines)) <= columns
    words = " ".join(text.split())
    assert report.document.summary in words
    losses = {
        row[title]
        for row in terminal_rows(report.document)
        for title in row
        if title.endswith((" at L", "8 L"))
    }
    assert all(part in text for loss in losses for part in loss.split(" ± "))
    assert "…" not in text
    head = " ".join(text.partition("─")[0].split())
    said = words.partition("lack of room: ")[2].partition(".")[0]
    for title in LEFT_OUT:
        first = {"to target": "target", "usable: own, fixed": "usable:"}.get(title, title)
        assert (first in head) != (title in said), title


def test_a_wide_terminal_has_every_column_and_the_colours_of_schemes(kept, monkeypatch, capsys):
    text = shown(kept["extrapolation"], 132, monkeypatch, capsys)
    assert "lack of room" not in text
    console = Console(force_terminal=True, color_system="truecolor", width=200)
    with console.capture() as capture:
        for report in kept.values():
            console.print(terminal_table(report.document, 200))
    for scheme in ("rope", "alibi"):
        red, green, blue = (int(COLOURS[SCHEMES.index(scheme)][0][i : i + 2], 16) for i in (1, 3, 5))
        assert f"38;2;{red};{green};{blue}m{scheme}" in capture.get()
