"""What a scheme costs for what it gives: speeds are compared only where the machine was the runs' alone."""

import re
from pathlib import Path
from typing import Any

import pytest

from poslab.analysis.comparisons import mean_ranks
from poslab.analysis.curves import is_steady
from poslab.analysis.results import Results, gather
from poslab.report.sections.convergence import section as convergence
from poslab.report.sections.cost import section
from poslab.report.sections.overview import rank_chart
from support.records import plan, seal, write_run


def study(runs: Path, seconds: dict[str, float], **more: Any) -> Results:
    names = []
    for place, (pos, each) in enumerate(seconds.items()):
        for seed in (0, 1, 2):
            names.append(f"{pos}-{seed}")
            write_run(runs, names[-1], pos, seed, shift=0.3 * place + 0.001 * seed, seconds=each, **more)
    plan(runs, names, "rope")
    return gather("made_up", runs, None)


def slow_down(runs: Path, name: str) -> None:
    """As beside other work: the second half of the run takes three times as long."""
    path = runs / "made_up" / name / "metrics.csv"
    lines = path.read_text().splitlines()
    place = lines[0].split(",").index("seconds")
    for i, line in enumerate(lines[1:], 1):
        cells = line.split(",")
        cells[place] = str(i / 10 + 0.2 * max(0, i - 50))
        lines[i] = ",".join(cells)
    path.write_text("\n".join(lines) + "\n")
    seal(path.parent)


def test_marks_stand_at_the_mean_speed_and_the_mean_loss(tmp_path):
    results = study(tmp_path, {"rope": 10.0, "alibi": 20.0})
    at_length, tested = section(results).charts
    assert [chart.name for chart in (at_length, tested)] == ["loss_by_speed", "tested_loss_by_speed"]
    for one, item in zip(at_length.series, results.arms, strict=True):
        (mark,) = one.points
        assert mark.x == item.mean("tokens_per_second")
        assert mark.mean == item.mean("sliding_1x")
    assert at_length.series[0].points[0].x == 2 * at_length.series[1].points[0].x


def test_where_other_work_slowed_a_run_speeds_are_not_compared(tmp_path):
    study(tmp_path, {"rope": 10.0, "alibi": 20.0})
    slow_down(tmp_path, "alibi-1")
    results = gather("made_up", tmp_path, None)
    assert [is_steady(run) for run in results.finished] == [True] * 4 + [False, True]
    assert section(results).charts == ()
    made = convergence(results)
    assert re.match("Speeds are not compared: .* alibi .* 70 %", *made.findings)
    assert "validation_loss_by_seconds" not in {chart.name for chart in made.charts}


def test_loss_by_compute_is_shown_where_a_token_does_not_cost_the_same(tmp_path):
    shown = {}
    for name, flops in (("same", 6e6), ("other", 9e6)):
        write_run(tmp_path / name, "rope-0", "rope")
        write_run(tmp_path / name, "alibi-0", "alibi", flops=flops)
        plan(tmp_path / name, ["rope-0", "alibi-0"], "rope")
        charts = convergence(gather("made_up", tmp_path / name, None)).charts
        shown[name] = "validation_loss_by_flops" in {chart.name for chart in charts}
    assert shown == {"same": False, "other": True}


def test_loss_by_time_is_loss_by_tokens_at_the_mean_time_a_token(tmp_path):
    results = study(tmp_path, {"rope": 10.0, "alibi": 20.0})
    charts = {chart.name: chart for chart in convergence(results).charts}
    tokens, seconds = charts["validation_loss"].series, charts["validation_loss_by_seconds"].series
    assert seconds[0].points[-1].x == pytest.approx(10.0)
    assert seconds[1].points[-1].x == pytest.approx(20.0)
    assert [one.mean for one in seconds[1].points] == [one.mean for one in tokens[1].points]


def test_mean_ranks_count_the_seeds_that_all_have(tmp_path):
    results = study(tmp_path, {"rope": 10.0, "alibi": 10.0, "t5": 10.0})
    write_run(tmp_path, "t5-9", "t5", 9)
    assert mean_ranks(results.arms, "sliding_8x") == {"rope": 1.0, "alibi": 2.0, "t5": 3.0}
    assert mean_ranks(results.arms, "nothing") == {}
    (chart,) = rank_chart(results)
    assert [(place.label, place.mean, place.best, place.worst) for place in chart.places] == [
        (label, mean, results.ranks[label].best, results.ranks[label].worst)
        for label, mean in (("rope", 1.0), ("alibi", 2.0), ("t5", 3.0))
    ]


def test_equal_losses_share_their_rank(tmp_path):
    for pos in ("rope", "alibi"):
        write_run(tmp_path, pos, pos)
    plan(tmp_path, ["rope", "alibi"], "rope")
    assert mean_ranks(gather("made_up", tmp_path, None).arms, "sliding_8x") == {"rope": 1.5, "alibi": 1.5}


def test_two_arms_or_one_seed_have_no_figure_of_ranks(tmp_path):
    assert rank_chart(study(tmp_path, {"rope": 10.0, "alibi": 10.0})) == []
