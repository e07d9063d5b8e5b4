"""The claims of a verdict as one family of tests, and the numbers beside a tested difference."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from poslab.analysis.claims import Claim, claims
from poslab.analysis.comparisons import Comparison, compare, pairs, ranks
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.results import Results, gather
from poslab.analysis.sheets import claims_sheet, differences_sheet
from poslab.analysis.spread import difference
from poslab.analysis.statistics import Time, estimate, holm, ratio
from poslab.record.losses import LossSum
from poslab.report.verdict import extrapolation
from poslab.report.warnings import warnings_of
from support.arms import of_rows
from support.records import write_run

STUDIES = 500
FALSE_ALARMS = 0.05 + 2 * math.sqrt(0.05 * 0.95 / STUDIES)
FIGURES = ("loss_1x", "loss_8x", "context_gain_8x")
BUDGET = 0.084  # log time; with a spread of 0.1 about 0 a fifth of the runs is cut off
FAR = 50.0  # an effect in deviations, also of log times, that is always found


def study(
    random: np.random.Generator, n: int, effects: Sequence[float]
) -> tuple[Sequence[Claim], Sequence[Comparison]]:
    """Return the tests and pairs of arms with `effects` on every figure and on the time.

    Noise of a seed is correlated over arms and figures.
    """
    shared, own = random.standard_normal((4, 1, n)), random.standard_normal((4, len(effects), n))
    values = (shared + own) / math.sqrt(2) + np.array(effects)[:, None]
    arms: list[ArmFigures] = []
    for i in range(len(effects)):
        rows = ({figure: float(values[k, i, seed]) for k, figure in enumerate(FIGURES)} for seed in range(n))
        made = of_rows(f"arm {i}", *rows)
        times = {
            seed: Time(math.exp(min(float(log), BUDGET)), bool(log <= BUDGET), math.exp(BUDGET))
            for seed, log in enumerate(0.1 * values[3, i])
        }
        over = ratio(times, arms[0].times[""]) if arms else None
        found = {figure: estimate([row[figure] for row in made.rows]) for figure in FIGURES}
        arms.append(replace(made, figures=found, times={"": times}, ratios={"": over} if over else {}))
    lengths, asked = (1.0, 8.0), (arms, arms[0], "loss_8x")
    tests, _, between = claims(*asked, compare(*asked, lengths), pairs(*asked), lengths, 1, [(arms, arms[0])])
    return tests, between


@pytest.mark.parametrize(
    ("n", "effects"),
    [(3, (0.0,) * 5), (10, (0.0,) * 5), (5, (0.0, -FAR, 0.0, 0.0, 0.0))],
)
def test_at_most_one_study_in_twenty_makes_a_false_claim(n, effects):
    """If all five arms are equal, and if one is far better on everything."""
    random, wrong, winners = np.random.default_rng([n, len(set(effects))]), 0, 0
    true = {f"arm {i}": effect for i, effect in enumerate(effects)} | {None: 0.0}
    for _ in range(STUDIES):
        found, between = study(random, n, effects)
        # Pairs, context gains, losses at L and times, whichever runs were cut off.
        assert len(found) == 10 + 5 + 4 + 4
        wrong += any(test.holds and true[test.arm] == true[test.against] for test in found)
        winners += any(rank.worst == 1 for rank in ranks(between).values())
    assert wrong / STUDIES <= FALSE_ALARMS
    if len(set(effects)) == 1:
        assert winners <= wrong


def test_the_family_is_corrected_by_hand():
    """With weights 3 and 1, p values of 0.03 and 0.02 become 0.04 and 0.08; the smaller of these is first."""
    assert holm({"a": 0.03, "b": 0.02}, {"a": 3.0, "b": 1.0}) == pytest.approx({"a": 0.04, "b": 0.04})
    assert holm({"a": 0.03, "b": 0.06}, {"a": 3.0, "b": 1.0}) == pytest.approx({"a": 0.04, "b": 0.06})
    assert holm({"a": 0.01, "b": 0.02, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.04, "c": 0.04})


def made_up(runs: Path, shift: Sequence[float], gain: Sequence[float] = (0.0,)) -> Results:
    """Write rope, and alibi with a shifted loss by seed; both gain from context by seed."""
    for seed, by in enumerate(shift):
        sliding = {1.0: 2.0, 2.0: 2.0, 4.0: 2.0, 8.0: 2.0 - gain[seed % len(gain)]}
        for pos, extra in (("rope", 0.0), ("alibi", by)):
            write_run(runs, f"{pos}-{seed}", pos=pos, seed=seed, shift=extra, sliding=sliding)
    return gather("made_up", runs, "rope")


def test_a_gain_with_an_interval_above_0_is_no_finding_after_correction(tmp_path):
    """0.03 ± 0.026 by itself: its p of 0.03 is not a finding among all tests of a verdict."""
    results = made_up(tmp_path, [0.1, 0.11, 0.09, 0.1, 0.105], [0.01, 0.05, 0.02, 0.06, 0.01])
    tests = claims_sheet(results)[1]
    over = next(row for row in tests if row["figure"] == "context_gain_8x")
    assert (over["p"] < 0.05, over["claimed"]) == (True, False)
    (sentence,) = extrapolation(results)
    assert "on this text" in sentence  # the test is over seeds only
    assert sentence.endswith("falls, but not after correction, for alibi and rope.")
    assert math.fsum(row["weight"] or 0 for row in tests) == pytest.approx(1.0)
    tested = next(row for row in tests if row["figure"] == "sliding_8x")
    shown = next(row for row in differences_sheet(results)[1] if row["primary"])
    assert (tested["p"], tested["p_holm"]) == (shown["p"], shown["p_holm"])


def test_differences_far_from_normal_are_named_by_arm(tmp_path):
    tame = made_up(tmp_path / "tame", [0.1, 0.11, 0.12, 0.09, 0.1, 0.13])
    wild = made_up(tmp_path / "wild", [0.1, 0.101, 0.102, 0.1, 0.101, 3.0])
    few = made_up(tmp_path / "few", [0.1, 0.101, 0.102, 3.0])
    (warning,) = (text for text in warnings_of(wild) if "normal" in text)
    assert "of alibi from rope in the sliding loss at 8 L are far from normal" in warning
    for quiet in (tame, few):
        assert not [text for text in warnings_of(quiet) if "normal" in text]


def test_with_more_arms_a_smaller_p_is_far_from_normal(tmp_path):
    results = made_up(tmp_path, [0.1, 0.11, 0.12, 0.09, 0.1, 0.13])
    comparison = next(item for item in results.comparisons if item.normality_p is not None)

    def warned(*found: float) -> bool:
        several = tuple(replace(comparison, normality_p=p) for p in found)
        return any("normal" in text for text in warnings_of(replace(results, comparisons=several)))

    assert warned(0.03)
    assert warned(0.02, 0.5)
    assert not warned(0.03, 0.5)
    assert not warned(0.02, 0.5, 0.5)


def error_over_text(results: Results) -> float | None:
    """Return the standard error of alibi less rope over segments of text."""
    between = difference(results.arms[0], results.arms[1], "loss_8x", by_segment=True)
    return None if between.text is None else math.sqrt(between.text.variance)


def with_text(
    results: Results, random: np.random.Generator, noise: float, tokens: Sequence[int]
) -> float | None:
    """Return that error if alibi's segments differ from rope's by normal noise, equal for all seeds."""
    by_segment = random.normal(0.3, noise, len(tokens))
    hard = random.normal(2.0, 5.0, len(tokens))  # text that is hard for all runs cancels
    for run in (*results.arms[0].arm.finished, *results.arms[1].arm.finished):
        # Another training changes all segments alike.
        losses = hard + by_segment * (run.pos == "alibi") + random.normal(0, 3.0)
        run.segments["non_overlapping", 8.0] = {
            str(i): LossSum(float(n * losses[i]), n, None) for i, n in enumerate(tokens)
        }
    return error_over_text(results)


def test_the_error_over_text_is_the_change_by_other_text(tmp_path):
    """With noise of 0.2: 0.2 over the root of the number of segments, regardless of hard text and seeds."""
    results, random = made_up(tmp_path, [0.1, 0.12]), np.random.default_rng(1)
    errors = [with_text(results, random, 0.2, [64] * 50) for _ in range(200)]
    assert all(error is not None for error in errors)
    assert np.mean([error for error in errors if error]) == pytest.approx(0.2 / math.sqrt(50), rel=0.05)
    assert with_text(results, random, 0.0, [64] * 50) == pytest.approx(0.0, abs=1e-9)
    assert with_text(results, random, 0.2, [64] * 7) is None
    with_text(results, random, 0.2, [64] * 50)
    one = results.arms[0].arm.finished[0].segments["non_overlapping", 8.0]
    for i in range(43):  # on other tokens than in the other runs
        one[str(i)] = LossSum(1.0, 63, None)
    assert error_over_text(results) is None
