"""Many runs: the page stays small and says all it should, and memory stays within bounds."""

import csv
import re
import runpy
from dataclasses import replace

import pytest

from poslab.analysis.results import gather
from poslab.record.reader import load
from poslab.report.sections import overview
from poslab.report.write import write
from support.commands import ROOT
from support.records import read, seal, write_run

pytestmark = pytest.mark.usefixtures("undrawn")

MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def benchmark():
    return runpy.run_path(str(ROOT / "benchmarks" / "report.py"))


@pytest.fixture(scope="module")
def results(benchmark, tmp_path_factory):
    """200 runs in 40 arms."""
    runs = tmp_path_factory.mktemp("many")
    benchmark["write_study"](runs, 40, 5)
    return gather("many", runs, None)


def test_the_page_of_200_runs_is_small_and_names_each(results, tmp_path):
    directory = write(results, tmp_path).directory
    page = (directory / "index.html").read_text()
    assert len(page.encode()) < 0.65 * MEGABYTE
    rows = read(directory / "summary.csv")
    assert len(rows) == 200
    assert all(f">{row['run']}<" in page for row in rows)
    first_box = r'<section id="(\w+)">(?:(?!</section>).)*?<div class="(box[ \w]*)"'
    sections = re.findall(first_box, page, flags=re.DOTALL)
    # What is long has a frame of its own to scroll in.
    assert {name for name, kind in sections if kind == "box tall"} == {"runs", "differences"}
    assert ("arms", "box") in sections


def test_what_all_of_many_runs_share_is_said_once(results):
    whole = overview.runs_table(results)
    table = overview.without_shared_columns(whole)
    titles = [column.title for column in table.columns]
    assert "Seed" in titles
    assert "Time" in titles
    assert not {"Attention", "Kernel", "Device", "Parameters", "Status", "Reason"} & set(titles)
    assert "The same for all: Attention softmax, Status done, Parameters 803 k," in table.caption
    assert "Device NVIDIA H200" in table.caption
    assert [row[0] for row in table.rows] == [row[0] for row in whole.rows]
    assert {len(row) for row in table.rows} == {len(titles)}
    few = overview.without_shared_columns(replace(whole, records=whole.records[: overview.MANY - 1]))
    assert few.columns == whole.columns


@pytest.mark.study
def test_1000_runs_fit_into_a_megabyte_of_page_and_a_gigabyte_of_memory(benchmark, tmp_path):
    benchmark["write_study"](tmp_path / "runs", 40, 25)
    found = benchmark["measure"](tmp_path)
    assert found.page < MEGABYTE
    assert found.peak < 1e9


@pytest.mark.parametrize(
    ("file", "before", "after", "reason"),
    [
        ("extrapolation.csv", ",64,128,\n", ",64\n", "extrapolation.csv has a broken row"),
        ("extrapolation.csv", ",64,128,\n", ",64,128,,1\n", "extrapolation.csv has a broken row"),
        ("extrapolation.csv", ",1,", ",0,", "extrapolation.csv has segment 0 twice"),
        ("extrapolation.csv", ",64,128,\n", ",x,128,\n", "its CSV files cannot be read"),
        ("position.csv", "nll", "null", "position.csv has no column nll"),
        ("position.csv", "0,", '"0,', "its CSV files cannot be read"),
        ("metrics.csv", "\n2,32,", "\n2,16,", "metrics.csv: its tokens do not grow from row to row"),
    ],
)
def test_a_file_that_cannot_be_so_is_not_read(file, before, after, reason, tmp_path):
    path = write_run(tmp_path, "a") / file
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    seal(path.parent)
    (run,) = load("made_up", tmp_path).runs
    assert (run.status, run.reason) == ("unreadable", reason)


def test_columns_may_stand_in_another_order_and_rows_be_without_a_number(tmp_path):
    directory = write_run(tmp_path, "a")
    with (directory / "position.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    rows[3][1] = ""  # not defined there
    with (directory / "position.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[*row[::-1], "more"] for row in rows])
        file.write("\n")
    seal(directory)
    (run,) = load("made_up", tmp_path).runs
    assert len(run.positions) == len(rows) - 2
    assert run.positions[0][:3] == (8.0, 4, 8)
    assert 2 not in run.positions
