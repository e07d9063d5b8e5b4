"""Several budgets and sizes in one study: gaps, crossings and trends, and how often these are right."""

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from scipy.special import stdtrit

from dev.trends import coverage, coverage_of_needs
from poslab.analysis.ladder import Ladder, agreement, crossings, trend
from poslab.analysis.results import Results, gather
from poslab.analysis.scaling import scaling
from poslab.analysis.statistics import TextNoise, weighted_sum
from poslab.report.formatting import quantity
from poslab.report.sections.contents import document
from poslab.report.sections.ladder import section
from poslab.report.sections.ladder_sentences import findings
from poslab.report.warnings import warnings_of
from support.records import BATCH, L, plan, words, write_run

LOSS = "loss_1x"


def settings(width: int, steps: int) -> dict[str, Any]:
    return {
        "model": {"layers": width // 32, "width": width, "heads": 2},
        "trainer": {"max_steps": steps, "batch_size": BATCH, "learning_rate": 0.1 / width},
    }


def study(
    runs: Path,
    losses: Mapping[str, Sequence[float | None]],
    budgets: list[tuple[int, int]],
    noise: float = 0.001,
    seeds: int = 3,
) -> Ladder | None:
    """Return the rungs of a study with these losses, a scheme at each (width, steps), and some noise by seed.

    None as a loss: the scheme was not trained there.
    """
    random, names = Random(0), []
    for pos, means in losses.items():
        for (width, steps), mean in zip(budgets, means, strict=True):
            for seed in range(0 if mean is None else seeds):
                loss = mean + random.gauss(0, noise)
                size = {"parameters": width**2, "flops": 6.0 * width**2 * steps * BATCH * L}
                names.append(f"{pos}-{width}-{steps}-{seed}")
                at = {"sliding": {1.0: loss, 2.0: loss}, "config": settings(width, steps)}
                write_run(runs, names[-1], pos, seed, **at, **size)
    plan(runs, names)
    return gather("made_up", runs, None).rungs


def changed(runs: Path, reference: str | None = None) -> Results:
    """Gather the study again from the runs that are left."""
    plan(runs, sorted(path.name for path in (runs / "made_up").glob("*-*")))
    return gather("made_up", runs, reference)


BUDGETS = [(64, 400), (64, 1600), (64, 4000)]


def test_two_arms_cross_if_both_gaps_exclude_0_with_opposite_signs(tmp_path):
    losses = {"rope": [2.0, 1.8, 1.6], "t5": [1.9, 1.75, 1.7], "alibi": [2.0, 1.9, 1.9], "none": [2.2] * 3}
    rungs = study(tmp_path / "a", losses, BUDGETS)
    assert (rungs.reference, rungs.contenders) == ("rope", ("rope", "t5", "alibi", "none"))
    assert [round(rung.share, 2) for rung in rungs.rungs] == [1.56, 6.25, 15.62]
    (cross,), looked_at = crossings(rungs, LOSS)
    assert (cross.arm, cross.against, cross.before.share, cross.after.share) == ("t5", "rope", 6.25, 15.625)
    assert cross.gap_before.mean == pytest.approx(-0.05, abs=0.01)
    assert cross.gap_after.mean == pytest.approx(0.1, abs=0.01)
    assert looked_at == 6 * 3  # pairs of arms times pairs of budgets
    of_another_length = replace(rungs, contenders=(*rungs.contenders, "rope L=64"))  # in no rung
    assert of_another_length.compared == rungs.compared  # so no column of dashes
    # At first t5 is below rope, but alibi is not: two of six pairs are ordered otherwise than at the end.
    assert rungs.rungs[0].order(LOSS)[0] == "t5"
    first, last = (agreement(rungs, rungs.rungs[end], LOSS) for end in (0, -1))
    assert (first["pairs"], last["same"]) == (6, 6)
    assert first["same"] < 6
    # A changed order of means within noise is not a crossing.
    within = {"rope": [2.0, 1.8, 1.6], "t5": [1.99, 1.81, 1.61]}
    assert not crossings(study(tmp_path / "b", within, BUDGETS, noise=0.02), LOSS)[0]
    apart = gather("made_up", tmp_path / "b", None)
    assert (
        words(apart).count("No two arms are shown to change places, here or in sliding windows at 2 L.") == 1
    )
    assert "ladder_crossings" not in document(apart).sheets  # pandas reads no file without columns


def test_a_report_begins_with_the_gaps_by_budget_and_a_bar_for_each_crossing(tmp_path):
    """Arms of different budgets are not ranked, tested or compared with each other."""
    study(tmp_path, {"rope": [2.0, 1.8, 1.6], "t5": [1.9, 1.75, 1.7], "alibi": [2.1] * 3}, BUDGETS)
    page = document(results := gather("made_up", tmp_path, None))
    assert "Against the reference" not in {table.title for part in page.sections for table in part.tables}
    answer = page.answer
    assert [row["order"] for row in answer.table.records[:3]] == ["t5, rope, alibi"] * 2 + ["rope, t5, alibi"]
    assert answer.table.records[2]["gap_t5_mean"] == pytest.approx(0.1, abs=0.01)
    assert not any(column.key == "rank" for column in answer.table.columns)
    (panel,) = answer.chart.panels
    assert [(span.label, span.low, span.high) for span in panel.spans] == [("t5, rope", 6.25, 15.625)]
    lowest = min(point.mean - (point.half_width or 0) for line in panel.series for point in line.points)
    assert panel.frame[0] < panel.spans[0].y < lowest  # below every line but inside the frame
    assert not results.ranks
    pairs = [(pair.arm.label, pair.against.label) for pair in results.pairs]
    tested = [(test.arm, test.against) for test in results.claims if test.against is not None]
    assert len(pairs) == 3 * 3
    assert {one.partition(" ")[2] == two.partition(" ")[2] for one, two in pairs + tested} == {True}


def test_orders_are_compared_with_the_last_rung_that_has_all_arms(tmp_path):
    """The sentence about a trend ends at the last budget of its arm."""
    budgets = [*BUDGETS, (64, 8000)]
    losses = {"rope": [2.0, 1.8, 1.6, 1.5], "t5": [1.9, 1.75, 1.58, 1.55], "alibi": [2.4, 2.0, 1.7, None]}
    rungs = study(tmp_path, losses, budgets)
    assert rungs.whole is rungs.rungs[2]
    found = [agreement(rungs, rung, LOSS) for rung in rungs.rungs]
    assert [(one["pairs"], one["same"]) for one in found] == [(3, 3)] * 3 + [(1, 0)]
    results = gather("made_up", tmp_path, None)
    assert "; t5, rope, alibi at 16 tokens per parameter; rope, t5 at 31" in words(results)
    trends, *_ = section(results).findings
    assert f"and {quantity(trend(rungs, 'alibi', LOSS).flops_to)} FLOP)" in trends  # not that of t5
    # Those without a gap to the reference at their size and budget are named.
    losses = {"rope": [2.0, 1.8, 1.6, None, 1.4], "t5": [1.9, 1.75, 1.5, 1.4, None]}
    study(tmp_path / "apart", losses, [*BUDGETS, (64, 6000), (64, 8000)])
    left_out = "in no order and no trend: rope 8000 steps and t5 6000 steps."
    warnings = " ".join(warnings_of(gather("made_up", tmp_path / "apart", None)))
    assert left_out in warnings
    assert "budgets differ" not in warnings  # gaps are taken within one budget


SIZES = [(64, 100), (96, 225), (128, 400), (192, 900), (64, 1000)]  # in proportion, and one trained longer


def plane(sizes: list[tuple[int, int]], at: float, compute: float, share: float) -> list[float]:
    """Return gaps that begin with `at` and change by a slope for each tenfold of compute and of share."""
    flops = [width**2 * steps for width, steps in sizes]
    shares = [steps / width**2 for width, steps in sizes]
    return [
        at + compute * math.log10(c / flops[0]) + share * math.log10(d / shares[0])
        for c, d in zip(flops, shares, strict=True)
    ]


def test_a_trend_is_the_least_squares_slope_over_compute_and_tokens_per_parameter(tmp_path):
    gaps = plane(SIZES, -0.1, 0.03, -0.01)
    losses = {"rope": [2.0] * 5, "t5": [2 + gap for gap in gaps], "alibi": [2.1] * 5}
    rungs = study(tmp_path / "a", losses, SIZES, noise=1e-4)
    assert [len(group) for group in rungs.shares] == [4, 1]
    found, flat = trend(rungs, "t5", LOSS), trend(rungs, "alibi", LOSS)
    assert found.per_tenfold.mean == pytest.approx(0.03, abs=1e-3)
    assert found.per_tenfold_share.mean == pytest.approx(-0.01, abs=1e-3)
    assert (found.reading, flat.reading) == ("shrinks", "no trend seen")
    # A gap that grows with compute and shrinks with training is said to grow.
    sizes = [*SIZES[:4], (64, 9000)]
    gaps = plane(sizes, 0.10, 0.03, -0.05)
    rungs = study(tmp_path / "b", {"rope": [2.0] * 5, "t5": [2 + gap for gap in gaps]}, sizes, noise=1e-4)
    found = trend(rungs, "t5", LOSS)
    assert gaps[-1] < gaps[0]
    assert (found.per_tenfold.mean > 0, found.reading) == (True, "grows")
    assert found.last.mean == pytest.approx(gaps[3], abs=1e-3)


def test_few_seeds_are_exploratory_and_arms_without_the_loss_are_named(tmp_path):
    study(tmp_path, {"rope": [2.0, 1.6, 1.4], "t5": [1.9, 1.7, 1.6]}, BUDGETS, seeds=2)
    for steps in (400, 1600):
        for seed in range(2):
            short = {"sliding": {1.0: 2.2 + 0.001 * seed}, "config": settings(64, steps), "max_length": L}
            write_run(tmp_path, f"learned-{steps}-{seed}", "learned", seed, **short)
    first, *rest = document(changed(tmp_path, "rope 400 steps")).answer.sentences
    assert first.startswith("2 seeds, so exploratory: ")
    assert "learned" in first
    assert any("learned (not defined or not measured there)" in expected for expected in rest)
    for run in (tmp_path / "made_up").glob("t5-*"):
        shutil.rmtree(run)  # now no arm has a gap past L
    *_, last = document(gather("made_up", tmp_path, "rope 400 steps")).answer.sentences[:3]
    assert "learned (not defined or not measured there)" in last
    study(tmp_path / "one", {"rope": [2.0, 1.6, 1.4], "t5": [1.9, 1.7, 1.6]}, BUDGETS, seeds=1)
    trends, *_ = section(gather("made_up", tmp_path / "one", None)).findings
    assert trends.endswith("at L: with one seed, no trend is tested for t5.")


def test_one_deviating_size_is_no_trend_and_a_curve_has_no_slope(tmp_path):
    """Even if each gap is precise: noise of seeds only would give a hundredth of the slope's interval."""
    gaps = {"t5": [0.1, 0.1, 0.09, 0.2], "alibi": [0.22, 0.34, 0.13, 0.03]}
    losses = {pos: [2.0 + gap for gap in each] for pos, each in {"rope": [0.0] * 4, **gaps}.items()}
    rungs = study(tmp_path, losses, SIZES[:4], noise=1e-4)
    found, bent = trend(rungs, "t5", LOSS), trend(rungs, "alibi", LOSS)
    assert abs(found.change.mean) > found.change.half_width
    assert found.reading == "no trend seen"
    assert bent.per_tenfold.half_width > abs(bent.per_tenfold.mean)
    assert not bent.along_a_line
    assert bent.change.mean == pytest.approx(-0.19, abs=1e-3)
    assert bent.reading == "shrinks"  # from the first to the last
    assert "on no line" in section(gather("made_up", tmp_path, None)).findings[0]


def test_a_last_rung_of_one_seed_keeps_the_seeds_of_the_others(tmp_path):
    losses = {"rope": [2.0] * 4, "t5": [1.90, 1.93, 1.95, 1.98]}
    whole = trend(study(tmp_path, losses, SIZES[:4], noise=1e-3, seeds=2), "t5", LOSS)
    for run in (tmp_path / "made_up").glob("*-192-*-1"):
        shutil.rmtree(run)
    results = changed(tmp_path)
    assert results.rungs.rungs[-1].gap("t5", "rope", LOSS).half_width is None
    found = trend(results.rungs, "t5", LOSS)
    assert (found.reading, whole.reading) == ("shrinks", "shrinks")
    assert found.per_tenfold.half_width > whole.per_tenfold.half_width
    page = document(results)
    assert page.answer.sentences[0].startswith("1 to 2 seeds, so exploratory")
    assert "from one seed" in page.answer.chart.caption


def test_if_seeds_differ_the_order_is_that_of_the_printed_gaps(tmp_path):
    """Over all its seeds t5 would be below rope, which lacks one of them."""
    study(tmp_path, {"rope": [2.0] * 3, "t5": [2.01] * 3, "alibi": [2.1] * 3}, BUDGETS, noise=0)
    shutil.rmtree(tmp_path / "made_up" / "rope-64-400-2")
    easier = {"sliding": {1.0: 1.0, 2.0: 1.0}, "config": settings(64, 400)}
    write_run(tmp_path, "t5-64-400-2", "t5", 2, **easier)
    rung = changed(tmp_path, "rope 400 steps").rungs.rungs[0]
    assert rung.arms["t5"].mean(LOSS) < rung.arms["rope"].mean(LOSS)
    assert rung.order(LOSS) == ["rope", "t5", "alibi"]


def test_noise_is_named_at_every_budget_and_an_arm_of_another_length_has_its_loss(tmp_path):
    """The mean of t5 is below rope throughout; at two budgets its seeds differ by more than that."""
    names = []
    for (width, steps), noise in zip(BUDGETS, (0.5, 0.5, 0.0), strict=True):
        for seed in range(3):
            losses = {"rope": 2.0 + 0.001 * seed, "t5": 1.7 + noise * (seed - 1), "alibi": 1.5}
            for pos, loss in losses.items():
                config = settings(width, steps) | ({"context_length": 2 * L} if pos == "alibi" else {})
                size = {"parameters": width**2, "flops": 6.0 * width**2 * steps}
                names.append(f"{pos}-{width}-{steps}-{seed}")
                at = {"sliding": {1.0: loss, 2.0: loss}, "config": config}
                write_run(tmp_path, names[-1], pos, seed, **at, **size)
    plan(tmp_path, names)
    rungs = gather("made_up", tmp_path, None).rungs
    order = next(findings(rungs))
    shares = " and ".join(f"{rung.share:.2g} tokens per parameter" for rung in rungs.rungs[:2])
    noise = f"{rungs.compared[0]} with {rungs.reference} (at {shares})"
    assert f"throughout; neighbours within noise: {noise}" in order
    assert "not measured" not in order
    assert f"(scored in another way than {rungs.reference})" in order


def test_a_report_of_a_ladder_has_a_panel_for_each_number_of_tokens_per_parameter(tmp_path):
    """Only numbers with at least two sizes have one, since a line needs two points."""
    sizes = [*SIZES[:2], (96, 2250), (64, 1000), (128, 40000)]
    study(tmp_path, {"rope": [2.0] * 5, "t5": [1.9] * 5}, sizes)
    page = document(gather("made_up", tmp_path, None))
    chart = page.answer.chart
    assert [panel.title for panel in chart.panels] == [
        "0.39 tokens per parameter",
        "3.9 tokens per parameter",
    ]
    assert "Only in the tables: 16.4 k parameters with 39 tokens each." in chart.caption
    assert {"gap_loss_1x", "gap_sliding_2x"} <= {chart.name for chart in page.charts}
    assert len(page.sheets["ladder"][1]) == 10
    assert page.sheets["ladder_order"][1][0]["order_loss_1x"] == "t5, rope"


@pytest.mark.parametrize("config", [{}, {"trainer": settings(64, 100)["trainer"] | {"learning_rate": 0.1}}])
def test_a_study_of_one_budget_or_of_rates_has_no_rungs(tmp_path, config):
    for pos in ("rope", "t5"):
        write_run(tmp_path, f"{pos}0", pos)
        write_run(tmp_path, f"{pos}1", pos, 0 if config else 1, config=config)
    results = gather("made_up", tmp_path, None)
    assert results.rungs is None
    assert "ladder" not in {chapter.name for chapter in document(results).chapters}


def test_intervals_of_a_trend_and_of_what_an_arm_needs_cover_the_truth():
    """60 ladders of two seeds, and 3; `python dev/trends.py` draws thousands, with other noise."""
    covered = coverage(np.random.default_rng(0), ladders=60, seeds=2)
    assert 0.9 <= covered["trend"] <= 0.995
    assert covered["gap"] >= 0.9
    needs = coverage_of_needs(np.random.default_rng(1), ladders=3, seeds=2)
    assert min(needs["tokens"], needs["parameters"]) >= 2 / 3


def law(parameters: float, tokens: float, k_n: float, k_d: float) -> float:
    return 0.8 + 20 * (k_n * parameters) ** -0.4 + 30 * (k_d * tokens) ** -0.3


WIDE = [(64, 200), (128, 800), (256, 3200), (512, 12800), (64, 20000), (128, 80)]


def by_law(k_n: float = 1.0, k_d: float = 1.0) -> list[float]:
    """Return the losses of an arm at the budgets WIDE."""
    return [law(width * width, steps * BATCH * L, k_n, k_d) for width, steps in WIDE]


@pytest.mark.parametrize(("k_n", "k_d"), [(1.0, 1.5), (0.7, 1.0)])
def test_the_tokens_and_parameters_that_an_arm_needs_are_those_of_the_law(tmp_path, k_n, k_d):
    rungs = study(tmp_path, {"rope": by_law(), "t5": by_law(k_n, k_d)}, WIDE, noise=2e-4)
    found = scaling(rungs, "t5", LOSS)
    for need, k in ((found.tokens, k_d), (found.parameters, k_n)):
        assert need.factor == pytest.approx(1 / k, rel=0.1)
        assert need.low < 1 / k < need.high < 1.5 * need.low
    assert found.tokens.reading == ("fewer" if k_d > 1 else "cannot tell")
    assert found.parameters.reading == ("cannot tell" if k_n == 1 else "more")
    assert found.floor == pytest.approx(0.8, rel=0.3)
    assert found.fits
    (row,) = document(gather("made_up", tmp_path, None)).sheets["scaling"][1]
    assert row["tokens"] == found.tokens.factor


def test_a_fit_to_noise_cannot_tell_and_three_sizes_are_not_fitted(tmp_path):
    losses = {"rope": by_law(), "t5": by_law(k_d=1.1)}
    found = scaling(study(tmp_path / "four", losses, WIDE, noise=0.05), "t5", LOSS)
    assert found.tokens.reading == "cannot tell"
    sections = document(gather("made_up", tmp_path / "four", None)).sections
    assert any("cannot tell" in sentence for section in sections for sentence in section.findings)
    few = study(tmp_path / "three", {pos: each[:3] for pos, each in losses.items()}, WIDE[:3])
    assert scaling(few, "t5", LOSS) is None


def test_a_law_that_does_not_fit_is_reported_and_a_bound_is_no_estimate(tmp_path):
    losses = {"rope": [loss - 1.05 for loss in by_law()]}  # the fit does not search E below 0
    losses["t5"] = [loss + 0.1 * (-1) ** place for place, loss in enumerate(losses["rope"])]
    losses["alibi"] = losses["rope"]
    rungs = study(tmp_path, losses, WIDE, noise=2e-4)
    assert scaling(rungs, "alibi", LOSS).floor is None
    assert not scaling(rungs, "t5", LOSS).fits
    rows = {row["arm"]: row for row in document(gather("made_up", tmp_path, None)).sheets["scaling"][1]}
    assert rows["t5"]["tokens_reading"] == rows["t5"]["parameters_reading"] == "the law does not fit"
    assert rows["alibi"]["floor"] is None
    losses = {"rope": [*losses["rope"], 0.5], "t5": [*losses["t5"], None], "alibi": [*losses["t5"], 0.6]}
    study(tmp_path / "more", losses, [*WIDE, (320, 2500)], noise=2e-4)
    sections = document(gather("made_up", tmp_path / "more", None)).sections
    expected = "The law fits no arm over 4 to 5 sizes"
    assert any(expected in sentence for section in sections for sentence in section.findings)


def test_a_second_seed_at_one_rung_only_is_too_little_for_a_fit(tmp_path):
    losses = {"rope": [2.5, 2.4, 2.3, 2.2, 2.35], "t5": [2.45, 2.35, 2.25, 2.15, 2.3]}
    study(tmp_path, losses, SIZES, seeds=1)
    study(tmp_path, {pos: means[:1] for pos, means in losses.items()}, SIZES[:1], seeds=2)
    assert scaling(changed(tmp_path).rungs, "t5", LOSS) is None


def test_a_sum_of_groups_has_the_interval_of_welch_for_two():
    """Welch 1947: the variances of both means, and degrees of freedom from both."""
    first, second = [1.0, 1.2, 1.1, 1.4], [0.2, 0.9, 0.5]
    ours = weighted_sum([(1, first), (-1, second)], None).difference()
    parts = [np.var(values, ddof=1) / len(values) for values in (first, second)]
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 3 + parts[1] ** 2 / 2)
    assert ours.mean == pytest.approx(np.mean(first) - np.mean(second))
    assert ours.half_width == pytest.approx(stdtrit(freedom, 0.975) * math.sqrt(sum(parts)))
    # A single seed takes the pooled variance of the other groups, and adds no degree of freedom.
    single = weighted_sum([(1, first), (2, [0.0]), (1, [1.0])], None).difference()
    assert single.half_width == pytest.approx(stdtrit(3, 0.975) * math.sqrt(parts[0] * (1 + 4 * 5)))
    noise = TextNoise(0.5, 1e9, 31)  # next to which the noise of seeds is negligible
    text = weighted_sum([(1, first), (1, second)], noise).difference()
    assert text.half_width == pytest.approx(1.96 * math.sqrt(0.5 + sum(parts)), rel=0.01)
