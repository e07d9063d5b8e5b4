"""The drawn paper figures: the same bytes in another process, and legends that leave room."""

import os
import shutil
import subprocess
import sys
from multiprocessing import get_context
from select import select
from threading import Event

import pytest

from poslab.analysis.curves import point
from poslab.analysis.results import gather
from poslab.analysis.statistics import Estimate
from poslab.paper import panels
from poslab.report.charts import LineChart, Series, decades
from poslab.report.render import paper
from poslab.report.render.paper import draw, draw_all
from poslab.report.sections.extrapolation import loss_by_length
from poslab.report.write import write_report
from support.commands import ROOT
from support.dashboards import write_study
from support.forks import one_of_each
from support.records import contents, write_run

REPORT = """
import sys
from poslab.commands.report import main
from poslab.report.render import paper
from support.forks import one_of_each
paper.draw_all = one_of_each
status = main(sys.argv[1:])
assert "torch" not in sys.modules
sys.exit(status)
"""


def test_another_process_writes_the_same_bytes_and_loads_no_torch(tmp_path, monkeypatch):
    """For a study with everything; W&B's files, the folder and the machine's settings have no effect."""
    monkeypatch.setattr(paper, "draw_all", one_of_each)
    write_study(tmp_path / "runs", "made_up")
    first = contents(write_report("made_up", tmp_path / "runs", tmp_path / "reports").directory)
    assert {f"figures/loss_by_position.{kind}" for kind in ("svg", "png", "pdf")} <= first.keys()
    assert {"rescaled.csv", "retrieval_passkey.csv", "bias_by_distance.csv"} <= first.keys()
    moved = tmp_path / "another place"
    shutil.copytree(tmp_path / "runs", moved / "records")
    for path in moved.glob("records/made_up/*/manifest.json"):
        (path.parent / "wandb").mkdir()
        (path.parent / "wandb" / "run.wandb").write_bytes(os.urandom(64))
    (moved / "matplotlibrc").write_text("lines.linewidth: 7\n")
    settings = {"PYTHONHASHSEED": "2", "TZ": "Pacific/Chatham", "LC_ALL": "de_DE.UTF-8", "PYTHONUTF8": "0"}
    options = (f"runs={moved / 'records'}", "reports=again")
    done = subprocess.run(
        [sys.executable, "-c", REPORT, "study=made_up", *options],
        cwd=moved,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}", "COLUMNS": "120", **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert contents(moved / "again" / "made_up") == first
    assert "again/made_up/index.html" in done.stdout
    assert "rope" in done.stdout


def lines(n: int, label: str = "arm-{}") -> LineChart:
    """Return `n` lines; the last ends early."""
    series = []
    for arm in range(n):
        ends = (1, 2) if arm < n - 1 else (1,)
        points = tuple(point(float(x), Estimate(2, 5 - arm / 100, 0.1, 4, 6), {"x": x}) for x in ends)
        series.append(Series(arm, label.format(arm), points))
    return LineChart("made_up", "", "", "x", "y", tuple(series), ((1.0, "1"), (2.0, "2")))


@pytest.mark.parametrize(("n", "kit"), [(2, False), (40, False), (40, True)])
def test_the_legend_is_beside_the_axes_and_inside_the_figure(n, kit):
    chart = lines(n, "rope_llama3 / performer L=64 width {}")  # as in a study of four settings
    figure = panels.laid_out([chart, chart, chart]) if kit else paper.laid_out(chart)
    (legend,) = figure.legends
    box = legend.get_window_extent()
    whole = figure.bbox
    assert whole.x0 <= box.x0 < box.x1 <= whole.x1
    assert whole.y0 <= box.y0 < box.y1 <= whole.y1
    for axes in figure.axes:
        assert not box.overlaps(axes.get_tightbbox())
        assert axes.get_window_extent().height > figure.dpi  # an inch
    names = {text.get_text() for text in legend.get_texts()}
    assert len(names) == n


def test_figures_drawn_in_parallel_equal_those_drawn_one_by_one(monkeypatch):
    several = [lines(n) for n in (2, 3)]
    one_by_one = list(map(draw, several))
    assert draw_all(several) == one_by_one
    monkeypatch.setattr(paper, "draw", drawn_by_the_first_process_alone)
    assert draw_all(several) == one_by_one  # also if the processes are killed


@pytest.mark.skipif(sys.platform != "linux", reason="figures are drawn in processes on Linux only")
def test_processes_that_draw_end_with_a_killed_command(monkeypatch):
    """They hold its locks: if they did not end, no later command could write the study's report."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(paper, "draw", draw_for_ever)
    reader, writer = os.pipe()
    monkeypatch.setenv("WRITER", str(writer))
    command = get_context("fork").Process(target=draw_all, args=([lines(2), lines(3)],))
    command.start()
    os.close(writer)
    assert os.read(reader, 1) + os.read(reader, 1) == b".."
    command.kill()
    command.join()
    ended, _, _ = select([reader], [], [], 60)  # readable once the last process that can write has ended
    assert ended
    assert os.read(reader, 1) == b""
    os.close(reader)


def draw_for_ever(chart):
    os.write(int(os.environ["WRITER"]), b".")
    Event().wait()


FIRST = os.getpid()


def drawn_by_the_first_process_alone(chart: LineChart) -> dict[str, bytes]:
    return draw(chart) if os.getpid() == FIRST else os._exit(1)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1e5, 3e7, ["100 k", "1 M", "10 M"]),
        (5e3, 6e4, ["5 k", "10 k", "20 k", "50 k"]),
        (1, 1.4, ["1", "1.2", "1.4"]),
        (7, 7, ["7"]),
    ],
)
def test_ticks_are_round_numbers_and_not_many(low, high, expected):
    points = tuple(point(x, Estimate(1, 5.0, None, 5.0, 5.0), {}) for x in (low, high))
    assert [label for _, label in decades([Series(0, "rope", points)])] == expected


def test_a_length_that_was_not_measured_has_no_tick(tmp_path):
    write_run(tmp_path, "rope-0", sliding={1.0: 2.0, 2.0: 2.0})
    chart = loss_by_length(gather("made_up", tmp_path, None), "sliding", bits=False)
    assert [label for _, label in chart.ticks] == ["L", "2 L"]
