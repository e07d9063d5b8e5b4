"""What a verdict claims, as one family of tests, and what stands beside a tested difference."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from poslab.analysis.arms import Arm
from poslab.analysis.claims import Claim, claims
from poslab.analysis.comparisons import Pair, compare, pairs, ranks
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.results import Results, gather
from poslab.analysis.sheets import claims_sheet, differences_sheet
from poslab.analysis.spread import difference
from poslab.analysis.statistics import Time, estimate, holm, ratio
from poslab.record.losses import LossSum
from poslab.record.schema import EXTRAPOLATION
from poslab.record.writer import RunRecord
from poslab.report.sections.overview import differences_table
from poslab.report.verdict import extrapolation
from poslab.report.warnings import warnings_of
from support.records import plan, read, seal, words, write_run

STUDIES = 500
FALSE_ALARMS = 0.05 + 2 * math.sqrt(0.05 * 0.95 / STUDIES)
FIGURES = ("loss_1x", "loss_8x", "context_gain_8x")
BUDGET = 0.084  # of log times that spread by 0.1 about 0: a fifth of the runs is cut off
FAR = 50.0  # an effect in deviations, and in the spread of a log time, that nobody misses


def study(
    random: np.random.Generator, n: int, effects: Sequence[float]
) -> tuple[Sequence[Claim], Sequence[Pair]]:
    """Tests and pairs of arms that have `effects` on every figure and on the time.

    Seeds go together over arms and figures.
    """
    shared, own = random.standard_normal((4, 1, n)), random.standard_normal((4, len(effects), n))
    values = (shared + own) / math.sqrt(2) + np.array(effects)[:, None]
    arms: list[ArmFigures] = []
    for i in range(len(effects)):
        rows = tuple(
            {"seed": seed, **{figure: float(values[k, i, seed]) for k, figure in enumerate(FIGURES)}}
            for seed in range(n)
        )
        logs = 0.1 * values[3, i]
        times = {
            seed: Time(math.exp(min(float(log), BUDGET)), bool(log <= BUDGET), math.exp(BUDGET))
            for seed, log in enumerate(logs)
        }
        over = ratio(times, arms[0].times[""]) if arms else None
        figures = {figure: estimate([row[figure] for row in rows]) for figure in FIGURES}
        known = {figure: one for figure, one in figures.items() if one is not None}
        ratios = {} if over is None else {"": over}
        arms.append(ArmFigures(Arm(f"arm {i}", "", "", (), {}), known, rows, {"": times}, ratios))
    lengths, asked = (1.0, 8.0), (arms, arms[0], "loss_8x")
    tests, _, between = claims(*asked, compare(*asked, lengths), pairs(*asked), lengths)
    return tests, between


@pytest.mark.parametrize(
    ("n", "effects"),
    [(3, (0.0,) * 5), (10, (0.0,) * 5), (5, (0.0, -FAR, 0.0, 0.0, 0.0))],
)
def test_one_study_in_twenty_claims_anything_false(n, effects):
    """Where all five arms are equal, and where one or two are far better in everything."""
    random, wrong, winners = np.random.default_rng([n, len(set(effects))]), 0, 0
    true = {f"arm {i}": effect for i, effect in enumerate(effects)}
    tests = set()
    for _ in range(STUDIES):
        found, between = study(random, n, effects)
        tests.add(len(found))
        false = [
            test
            for test in found
            if test.holds and true[test.arm] == (0.0 if test.against is None else true[test.against])
        ]
        wrong += bool(false)
        winners += any(rank.worst == 1 for rank in ranks(between).values())
    assert tests == {10 + 5 + 4 + 4}  # pairs, context gains, losses at L, times: whatever was cut off
    assert wrong / STUDIES <= FALSE_ALARMS
    if len(set(effects)) == 1:
        assert winners <= wrong


def test_the_family_is_corrected_by_hand():
    """Two tests of weights 3 and 1: p of 0.03 and 0.02 are 0.04 and 0.08, the first of them first."""
    assert holm({"a": 0.03, "b": 0.02}, {"a": 3.0, "b": 1.0}) == pytest.approx({"a": 0.04, "b": 0.04})
    assert holm({"a": 0.03, "b": 0.06}, {"a": 3.0, "b": 1.0}) == pytest.approx({"a": 0.04, "b": 0.06})
    assert holm({"a": 0.01, "b": 0.02, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.04, "c": 0.04})


def made_up(runs: Path, shift: Sequence[float], gain: Sequence[float] = (0.0,)) -> Results:
    """rope, and alibi with a shift of its loss for each seed; rope's gain from context by seed."""
    names = []
    for seed, by in enumerate(shift):
        here = gain[seed % len(gain)]
        sliding = {1.0: 2.0, 2.0: 2.0, 4.0: 2.0, 8.0: 2.0 - here}
        for pos, extra in (("rope", 0.0), ("alibi", by)):
            write_run(runs, f"{pos}-{seed}", pos=pos, seed=seed, shift=extra, sliding=sliding)
            names.append(f"{pos}-{seed}")
    plan(runs, names, "rope")
    return gather("made_up", runs, None)


def test_a_gain_whose_interval_leaves_out_0_is_no_finding_where_the_family_says_so(tmp_path):
    """0.03 ± 0.026 by itself: p is 0.03, which is no finding among the tests of a verdict."""
    gains = [0.01, 0.05, 0.02, 0.06, 0.01]
    results = made_up(tmp_path, [0.1, 0.11, 0.09, 0.1, 0.105], gains)
    over = next(row for row in claims_sheet(results)[1] if row["figure"] == "context_gain_8x")
    assert isinstance(over["p"], float)
    assert over["p"] < 0.05
    assert over["claimed"] is False
    (gains,) = extrapolation(results)
    assert gains.endswith("context gain at 8 L is not shown to differ from 0 for rope and alibi.")
    weights = [row["weight"] for row in claims_sheet(results)[1]]
    assert math.fsum(float(w) for w in weights if isinstance(w, float)) == pytest.approx(1.0)
    tested = next(row for row in claims_sheet(results)[1] if row["figure"] == "sliding_8x")
    shown = next(row for row in differences_sheet(results)[1] if row["primary"])
    assert (tested["p"], tested["p_holm"]) == (shown["p"], shown["p_holm"])


def test_seeds_far_from_normal_are_told_by_their_arm(tmp_path):
    tame = made_up(tmp_path / "tame", [0.1, 0.11, 0.12, 0.09, 0.1, 0.13])
    wild = made_up(tmp_path / "wild", [0.1, 0.101, 0.102, 0.1, 0.101, 3.0])
    few = made_up(tmp_path / "few", [0.1, 0.101, 0.102, 3.0])
    (told,) = (text for text in warnings_of(wild) if "normal" in text)
    assert "of alibi from rope in the sliding loss at 8 L are far from normal" in told
    for quiet in (tame, few):
        assert not [text for text in warnings_of(quiet) if "normal" in text]


def with_text(
    results: Results, random: np.random.Generator, noise: float, tokens: Sequence[int]
) -> float | None:
    """The standard error where alibi's segments differ from rope's by normal noise, the same on each seed."""
    by_segment = random.normal(0.3, noise, len(tokens))
    hard = random.normal(2.0, 5.0, len(tokens))  # what all runs find hard cancels
    for run in (*results.arms[0].arm.finished, *results.arms[1].arm.finished):
        mine = by_segment if run.pos == "alibi" else np.zeros(len(tokens))
        seed = float(random.normal(0, 3.0))  # what another training changes in all segments alike
        measured = {
            str(i): LossSum(float(n * (hard[i] + mine[i] + seed)), n, None) for i, n in enumerate(tokens)
        }
        run.segments["non_overlapping", 8.0] = measured
    return error_over_text(results)


def error_over_text(results: Results) -> float | None:
    """The standard error of alibi less rope over segments of text."""
    between = difference(results.arms[1], results.arms[0], "loss_8x", by_segment=True)
    return None if between.text is None else math.sqrt(between.text.variance)


def test_the_error_over_text_is_what_other_text_would_change(tmp_path):
    """Segments with noise of 0.2: 0.2 over the root of their number, and no more for hard text or seeds."""
    results, random = made_up(tmp_path, [0.1, 0.12]), np.random.default_rng(1)
    errors = [with_text(results, random, 0.2, [64] * 50) for _ in range(200)]
    assert all(error is not None for error in errors)
    assert np.mean([error for error in errors if error]) == pytest.approx(0.2 / math.sqrt(50), rel=0.05)
    assert with_text(results, random, 0.0, [64] * 50) == pytest.approx(0.0, abs=1e-9)
    assert with_text(results, random, 0.2, [64] * 7) is None
    with_text(results, random, 0.2, [64] * 50)
    one = results.arms[1].arm.finished[0].segments["non_overlapping", 8.0]
    for i in range(43):  # of other tokens than in the other runs
        one[str(i)] = LossSum(1.0, 63, None)
    assert error_over_text(results) is None


def test_a_report_says_of_how_many_documents_its_intervals_hold_the_noise(tmp_path):
    """Where alibi loses more on some documents, the noise is in the interval, its p and the sentence."""
    results = made_up(tmp_path, [0.1, 0.11, 0.12])
    before = next(row for row in differences_sheet(results)[1] if row["primary"])
    assert "documents" not in differences_sheet(results)[0]
    for directory in sorted((tmp_path / "made_up").glob("*-?")):
        extra = 0.0 if "rope" in directory.name else 1.0
        rows = [
            {**row, "segment": 10 * int(row["segment"]) + i, "document": i}
            | {"nll": float(row["nll"]) + extra * (64 if i % 2 else -64)}
            for row in read(directory / EXTRAPOLATION.file)
            for i in range(10)
        ]
        RunRecord(directory).write_table(EXTRAPOLATION, rows)
        seal(directory)
    results = gather("made_up", tmp_path, None)
    columns, sheet = differences_sheet(results)
    after = next(row for row in sheet if row["primary"])
    assert "documents" in columns
    assert after["documents"] == 10
    assert after["mean"] == pytest.approx(before["mean"])
    assert after["half_width"] > 10 * before["half_width"]
    assert after["text_standard_error"] == pytest.approx(1 / 3)
    assert (before["reading"], after["reading"]) == ("higher (exploratory)", "within noise")
    assert "over 10 documents of this text" in words(results).lower()
    assert "10 documents" in str(differences_table(results))
