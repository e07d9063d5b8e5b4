"""With many runs the page stays small and complete, and memory is bounded."""

import runpy

import pytest

from poslab.record.reader import load
from support.commands import ROOT
from support.records import LINES, seal, write_rescaled, write_run

MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def benchmark():
    return runpy.run_path(str(ROOT / "benchmarks" / "report_time.py"))


@pytest.mark.study
def test_1000_runs_fit_into_two_megabytes_of_page_and_a_gigabyte_of_memory(benchmark, tmp_path):
    benchmark["write_study"](tmp_path / "runs", 40, 25)
    found = benchmark["measure"](tmp_path)
    assert found.page < 2 * MEGABYTE
    assert found.peak < 1e9


@pytest.mark.parametrize(
    ("file", "before", "after", "reason"),
    [
        ("position.csv", "nll", "null", "position.csv has no column nll"),
        ("rescaled.csv", "", None, "rescaled.csv is missing"),
    ],
)
def test_an_impossible_file_is_not_read(file, before, after, reason, tmp_path):
    path = write_rescaled(tmp_path, "a", LINES) / file
    text = path.read_text()
    assert before in text
    if after is None:
        path.unlink()
    else:
        path.write_text(text.replace(before, after))
        seal(path.parent)
    (run,) = load("made_up", tmp_path).runs
    assert (run.status, run.reason) == ("unreadable", reason)


def test_columns_may_have_another_order_and_cells_may_be_empty(tmp_path):
    path = write_run(tmp_path, "a") / "position.csv"
    head, *rows = (line.split(",") for line in path.read_text().splitlines())
    rows[2][1] = ""  # not defined there
    path.write_text("".join(",".join([*row[::-1], "more"]) + "\n" for row in (head, *rows)) + "\n")
    seal(path.parent)
    (run,) = load("made_up", tmp_path).runs
    assert len(run.positions) == len(rows) - 1
    assert run.positions[0][:3] == (8.0, 4, 8)
    assert 2 not in run.positions
