"""Speed and loss of schemes: speeds are compared only if no other work slowed the machine."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poslab.analysis.comparisons import mean_ranks
from poslab.analysis.curves import is_steady
from poslab.analysis.results import Results, gather
from poslab.record.schema import METRICS
from poslab.record.writer import RunRecord
from poslab.report.sections.convergence import section as convergence
from poslab.report.sections.cost import section
from poslab.report.sections.extrapolation import section as extrapolation
from poslab.report.sections.overview import rank_chart
from support.commands import read
from support.records import plan, seal, write_run


def study(runs: Path, seconds: dict[str, float], **more: Any) -> Results:
    for place, (pos, each) in enumerate(seconds.items()):
        for seed in (0, 1, 2):
            shift = 0.3 * place + 0.001 * seed
            write_run(runs, f"{pos}-{seed}", pos, seed, shift=shift, seconds=each, **more)
    plan(runs, [f"{pos}-0" for pos in seconds], "rope")
    return gather("made_up", runs, None)


def test_speeds_are_means_and_curves_by_time_equal_those_by_tokens(tmp_path):
    results = study(tmp_path, {"rope": 10.0, "alibi": 20.0})
    at_length, tested = section(results).charts
    assert [chart.name for chart in (at_length, tested)] == ["loss_by_speed", "tested_loss_by_speed"]
    for one, item in zip(at_length.series, results.arms, strict=True):
        (mark,) = one.points
        assert mark.x == item.mean("tokens_per_second")
        assert mark.mean == item.mean("sliding_1x")
    assert at_length.series[0].points[0].x == 2 * at_length.series[1].points[0].x
    charts = {chart.name: chart for chart in convergence(results).charts}
    tokens, seconds = charts["validation_loss"].series, charts["validation_loss_by_seconds"].series
    assert [one.points[-1].x for one in seconds] == pytest.approx([10.0, 20.0])
    assert [one.mean for one in seconds[1].points] == [one.mean for one in tokens[1].points]
    assert rank_chart(results) == []  # with two arms


def test_if_other_work_slowed_a_run_speeds_are_not_compared(tmp_path):
    """The second half of the run takes three times as long."""
    study(tmp_path, {"rope": 10.0, "alibi": 20.0})
    path = tmp_path / "made_up" / "alibi-1" / "metrics.csv"
    rows = [
        {**row, "seconds": float(row["seconds"]) + 0.2 * max(0, i - 50)} for i, row in enumerate(read(path))
    ]
    RunRecord(path.parent).write_table(METRICS, rows)
    seal(path.parent)
    results = gather("made_up", tmp_path, None)
    assert [is_steady(run) for run in results.finished] == [True] * 4 + [False, True]
    assert section(results).charts == ()
    made = convergence(results)
    assert re.match("Speeds are not compared: .* alibi .* 70 %", *made.findings)
    assert "validation_loss_by_seconds" not in {chart.name for chart in made.charts}


def test_loss_by_compute_is_shown_if_the_cost_per_token_differs(tmp_path):
    shown = {}
    for name, flops in (("same", 6e6), ("other", 9e6)):
        write_run(tmp_path / name, "rope-0", "rope")
        write_run(tmp_path / name, "alibi-0", "alibi", flops=flops)
        charts = convergence(gather("made_up", tmp_path / name, "rope")).charts
        shown[name] = "validation_loss_by_flops" in {chart.name for chart in charts}
    assert shown == {"same": False, "other": True}


def test_mean_ranks_use_shared_seeds_and_equal_losses_share_a_rank(tmp_path):
    results = study(tmp_path, {"rope": 10.0, "alibi": 10.0, "t5": 10.0})
    write_run(tmp_path, "t5-9", "t5", 9)
    assert mean_ranks(results.arms, "sliding_8x") == {"rope": 1.0, "alibi": 2.0, "t5": 3.0}
    assert mean_ranks(results.arms, "parameters") == {"rope": 2.0, "alibi": 2.0, "t5": 2.0}
    assert mean_ranks(results.arms, "nothing") == {}
    (chart,) = rank_chart(results)
    assert [tuple(row.values()) for row in chart.rows] == [
        (label, mean, results.ranks[label].best, results.ranks[label].worst)
        for label, mean in (("rope", 1.0), ("alibi", 2.0), ("t5", 3.0))
    ]
    assert [chart.along(x) for x in (0.5, 2, 3.5)] == [0, 50, 100]
    (other,) = rank_chart(replace(results, arms=results.arms[::-1]))
    assert [track.label for track in other.tracks] == ["rope", "alibi", "t5"]


def test_the_loss_by_position_of_a_worse_arm_lies_above_that_of_the_reference(tmp_path):
    results = study(tmp_path, {"rope": 10.0, "alibi": 10.0})
    charts = {chart.name: chart for chart in extrapolation(results).charts}
    (line,) = charts["loss_by_position_less_reference"].series
    assert line.label == "alibi"
    assert [point.mean for point in line.points] == pytest.approx([0.3] * len(line.points))
