"""The verdict names arms that the two protocols order differently, and no others."""

import math
import random
from pathlib import Path

import numpy as np
import pytest

from poslab.analysis.comparisons import Comparison, pairs
from poslab.analysis.protocols import both_protocols
from poslab.analysis.results import Results, gather
from poslab.analysis.sheets import pairs_sheet
from poslab.report.verdict import extrapolation
from support.arms import of_rows
from support.records import plan, write_protocols

TESTED, BESIDE = "sliding_8x", "loss_8x"
STUDIES = 300
FALSE_ALARMS = 0.05 + 2 * math.sqrt(0.05 * 0.95 / STUDIES)


def study(runs: Path, at_8: dict[str, tuple[float, float]], seeds: int = 5, noise: float = 0.01) -> Results:
    """Write arms with a sliding and a non-overlapping loss at 8 L; `noise` is per run and protocol."""
    for pos, (sliding, plain) in at_8.items():
        for seed in range(seeds):
            one, other = (random.Random(f"{pos} {seed} {i}").gauss(0, noise) for i in range(2))
            losses = {1.0: 2.0, 8.0: sliding + one}, {1.0: 2.2, 8.0: plain + other}
            write_protocols(runs, f"{pos}-{seed}", *losses, pos=pos, seed=seed)
    plan(runs, [f"{pos}-0" for pos in at_8], next(iter(at_8)))
    return gather("made_up", runs, None)


def said(results: Results) -> list[str]:
    return [text for text in extrapolation(results) if "order mean losses differently" in text]


def test_arms_that_change_places_are_named(tmp_path):
    results = study(tmp_path / "a", {"rope": (3.0, 2.0), "alibi": (2.5, 2.5), "fox": (4.0, 4.0)})
    (text,) = said(results)
    assert "alibi below rope in sliding windows at 8 L, the other way round" in text
    rows = {(row["arm"], row["other"]): row for row in pairs_sheet(results)[1]}
    assert {pair for pair, row in rows.items() if row["changes_places"]} == {("rope", "alibi")}
    assert rows["rope", "alibi"]["mean"] == pytest.approx(0.5, abs=0.03)
    assert rows["rope", "alibi"]["counterpart_mean"] == pytest.approx(-0.5, abs=0.03)
    many = {f"arm{i}": (2.0 + i / 5, 4.0 - i / 5) for i in range(7)}  # every pair changes places
    (text,) = said(study(tmp_path / "b", many))
    assert "arm0 below arm1, arm0 below arm2, arm0 below arm3 and 18 more in sliding windows" in text


def test_arms_that_keep_their_places_are_not_named(tmp_path):
    assert said(study(tmp_path / "a", {"rope": (3.0, 2.5), "alibi": (2.5, 2.1), "fox": (4.0, 2.6)})) == []
    # Both differ by noise only.
    assert said(study(tmp_path / "b", {"rope": (3.0, 2.5), "alibi": (3.0, 2.5), "fox": (3.0, 2.5)})) == []
    # Only sliding windows separate them; the order in the other protocol is opposite by chance.
    assert said(study(tmp_path / "d", {f"arm{i}": (2.0 + i / 5, 2.5) for i in range(4)})) == []
    # One seed does not order arms.
    assert said(study(tmp_path / "c", {"rope": (3.0, 2.0), "alibi": (2.0, 3.0)}, seeds=1)) == []


def test_an_order_shown_only_by_the_other_protocol_is_named_as_such(tmp_path):
    """In sliding windows noise hides the order, but the difference certainly changes."""
    at_8 = {"rope": (2.54, 2.16), "t5": (2.50, 2.36), "none": (2.50, 2.37)}
    results = study(tmp_path, at_8, noise=0.04)
    assert not any(pair.separated for pair in results.pairs)
    (text,) = said(results)
    assert "t5 below rope (not separated) and none below rope (not separated) in sliding windows" in text


def judged(sliding: np.ndarray, plain: np.ndarray) -> tuple[Comparison, ...]:
    """Compare every pair of arms, from a row of losses by seed for each arm and protocol."""
    arms = [
        of_rows(f"arm {i}", *({TESTED: float(a), BESIDE: float(b)} for a, b in zip(*both, strict=True)))
        for i, both in enumerate(zip(sliding, plain, strict=True))
    ]
    return both_protocols(arms, pairs(arms, arms[0], TESTED))


@pytest.mark.parametrize(("effects", "own"), [([0.0] * 6, 1.0), ([0.0, 0.0, 0.5, 1.0, 2.0, 4.0], 0.2)])
def test_noise_makes_no_arms_change_places(effects, own):
    """Six arms with the same effects in both protocols, and a small or large noise (`own`) of each."""
    draw, n, wrong = np.random.default_rng(5), 5, 0
    for _ in range(STUDIES):
        shared = np.array(effects)[:, None] + draw.normal(0, 1, (1, n)) + draw.normal(0, 1, (len(effects), n))
        one, other = (shared + draw.normal(0, own, shared.shape) for _ in range(2))
        wrong += any(both.changes_places for both in judged(one, other))
    assert wrong / STUDIES <= FALSE_ALARMS


def test_arms_that_truly_change_places_are_found():
    """Three deviations apart, in opposite directions in the two protocols."""
    draw, n, found = np.random.default_rng(7), 5, 0
    for _ in range(100):
        shared = draw.normal(0, 1, (4, n))
        effects = np.array([0.0, 3.0, -3.0, 9.0])[:, None]
        one, other = (shared + sign * effects + draw.normal(0, 0.5, (4, n)) for sign in (1, -1))
        found += any(both.changes_places for both in judged(one, other))
    assert found / 100 > 0.95
