"""Tuned learning rates in the report: chosen by tuning runs, which count in nothing else."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from poslab.analysis.learning_rates import Choice, choose
from poslab.analysis.results import Results, gather
from poslab.record.manifest import read_manifest
from poslab.record.reader import Rates, ReportError
from poslab.record.writer import RunRecord
from poslab.report.sections.learning_rates import rates_table
from poslab.report.warnings import warnings_of
from support.records import BATCH, STEPS, plan, row_of, seal, write_run

GRID = (0.001, 0.002, 0.004, 0.008)
# Final validation loss at each rate of the grid, before the offset by seed; None: diverged.
ROPE = (2.3, 2.1, 2.2, None)
ALIBI = (2.4, 2.3, 2.2, 2.1)


RATE = ("learning_rate",)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ({0.1: [2.0, 3.0], 0.2: [2.4, 2.5], 0.4: [2.9, 2.9]}, (0.2, ())),
        ({0.4: [2.1], 0.2: [2.0], 0.1: [1.0]}, (0.1, RATE)),
        ({0.1: [2.0], 0.2: [1.0]}, (0.2, RATE)),
        # One seed of the best rate diverged; the grid still has a rate above the chosen one.
        ({0.1: [3.0, 3.0], 0.2: [2.0, 2.0], 0.4: [1.0, None]}, (0.2, ())),
        ({0.1: [3.0], 0.2: [math.nan], 0.4: [-math.inf]}, (0.1, RATE)),
        ({0.2: [2.0], 0.1: [2.0], 0.05: [3.0]}, (0.1, ())),
        ({0.1: [None], 0.2: []}, None),
    ],
)
def test_the_rate_with_the_lowest_mean_is_chosen(losses, expected):
    choice = choose({Rates(rate): values for rate, values in losses.items()})
    assert choice == (expected and Choice(Rates(expected[0]), expected[1]))


@pytest.mark.parametrize(
    ("best", "edges"),
    [((2.0, 3.0), ()), ((2.0, 10.0), ("scheme_rate",)), ((1.0, 1.0), ("learning_rate", "scheme_rate"))],
)
def test_each_of_two_rates_may_be_at_the_edge(best, edges):
    grid = [Rates(rate, scheme_rate) for rate in (1.0, 2.0, 4.0) for scheme_rate in (1.0, 3.0, 10.0)]
    assert choose({rates: [1.0 if rates == best else 2.0] for rates in grid}) == Choice(Rates(*best), edges)


def trainer(rate: float) -> dict[str, Any]:
    return {"max_steps": STEPS, "batch_size": BATCH, "learning_rate": rate}


def write_tuning(
    runs: Path,
    pos: str,
    losses: Sequence[float | None],
    seeds: Sequence[int] = (100, 101),
    **manifest: Any,
) -> None:
    """Write tuning runs of an arm with a linear fall to `losses`, a hundredth apart by seed."""
    for rate, loss in zip(GRID, losses, strict=False):
        for i, seed in enumerate(seeds):
            # Only the last seed diverges.
            ended = {"status": "diverged", "reason": "not finite"} if loss is None and i else {}
            end = (loss or 2.0) + 0.01 * i
            curve = [3 - (3 - end) * step / 100 for step in range(101)]
            config = {"part": "tuning", "trainer": trainer(rate), "evaluate": {"segments": 0}}
            name = f"tune-{pos}-{rate}-{seed}"
            made = write_run(runs, name, pos, seed, curve=curve, config=config, **ended, **manifest)
            (made / "extrapolation.csv").unlink()
            (made / "position.csv").unlink()
            seal(made)


def write_compared(runs: Path, pos: str, rate: float, seeds: Sequence[int] = (0, 1), **more: Any) -> None:
    for seed in seeds:
        config = {"part": "comparison", "trainer": trainer(rate), "tune": {"rates": [rate]}}
        name = f"{pos}-{seed}"
        write_run(runs, name, pos=pos, seed=seed, shift=0.01 * seed, config=config | more)


def write_study(runs: Path) -> None:
    write_compared(runs, "rope", 0.002)
    write_compared(runs, "alibi", 0.008, tune={"rates": [1]}, reference="rope")
    write_tuning(runs, "rope", ROPE)
    write_tuning(runs, "alibi", ALIBI)
    plan(runs, ["rope-0", "rope-1", "alibi-0", "alibi-1"])


def warned(results: Results) -> str:
    return " ".join(warnings_of(results))


def labels(results: Results) -> list[str]:
    return [item.arm.label for item in results.arms]


def test_tuning_runs_choose_the_rate_of_their_arm_and_count_in_nothing_else(tmp_path):
    write_study(tmp_path)
    tuned = gather("made_up", tmp_path, None)
    assert labels(tuned) == ["rope", "alibi"]
    rope, alibi = tuned.tunings
    assert (rope.label, rope.choice) == ("rope", Choice(Rates(0.002), ()))
    assert (alibi.label, alibi.choice) == ("alibi", Choice(Rates(0.008), RATE))
    assert [tried.rates for tried in rope.tried] == [Rates(rate) for rate in GRID]
    assert rope.tried[1].losses == pytest.approx((2.1, 2.11))
    assert (rope.tried[3].losses, rope.tried[3].without) == ((pytest.approx(2.0),), ("diverged",))
    assert rope.tried[3].estimate is None
    # The rise of the loss at neighbouring rates: None at the end of the grid, or if a seed diverged.
    assert rope.beside(2) is None
    first, second = rates_table(tuned).records
    expected = {"below": 0.2, "above": 0.1, "spread": 0.2}
    assert {key: first[key] for key in expected} == pytest.approx(expected)
    assert (second["below"], second["above"]) == (pytest.approx(0.1), None)
    for made in (tmp_path / "made_up").glob("tune-*"):
        (made / "manifest.json").unlink()
    alone = gather("made_up", tmp_path, None)
    assert [(item.figures, item.reached) for item in tuned.arms] == [
        (item.figures, item.reached) for item in alone.arms
    ]
    assert (tuned.targets, tuned.aulc_interval) == (alone.targets, alone.aulc_interval)
    assert [c.difference for c in tuned.comparisons] == [c.difference for c in alone.comparisons]
    assert "runs do not count" not in warned(tuned)


def test_a_rate_is_part_of_labels_only_if_none_was_tuned(tmp_path):
    write_compared(tmp_path, "rope", 0.002)
    write_compared(tmp_path, "alibi", 0.008)
    assert labels(gather("made_up", tmp_path, None)) == ["alibi lr 0.008", "rope lr 0.002"]
    write_tuning(tmp_path, "rope", ROPE)
    assert labels(gather("made_up", tmp_path, None)) == ["alibi", "rope"]
    # Two arms that differ only in the rate still have two labels, and one tuning.
    write_run(tmp_path, "fast", seed=0, config={"trainer": trainer(0.004)})
    write_run(tmp_path, "rope", study="other")
    results = gather("made_up,other", tmp_path, None)
    of_study = ["alibi", "rope lr 0.002", "rope lr 0.004"]
    assert labels(results) == [*(f"made_up: {label}" for label in of_study), "other: rope"]
    assert [one.choice for one in results.tunings] == [Choice(Rates(0.002), ())] * 2
    assert "rope lr 0.004 is compared at learning rate 0.004" in warned(results)
    assert "The learning rate was not tuned for made_up: alibi and other: rope." in warned(results)


def test_problems_of_a_tuning_are_warned_of(tmp_path):
    write_study(tmp_path)
    results = gather("made_up", tmp_path, None)
    assert "rate is at the edge of the grid for alibi (0.008): widen the grid." in warned(results)
    assert "compared at" not in warned(results)

    write_compared(tmp_path, "fox", 0.004)
    write_compared(tmp_path, "none", 0.004)
    write_tuning(tmp_path, "none", (2.0, 2.1, 2.2))
    write_tuning(tmp_path, "t5", (2.2, 2.1), seeds=(0,))
    write_tuning(tmp_path, "kerple", (None, None))
    results = gather("made_up", tmp_path, None)
    for expected in (
        "none is compared at learning rate 0.004, but its tuning chose 0.001.",
        "The learning rate was not tuned for fox.",
        "t5 is not compared, though its learning rate was tuned.",
        "No learning rate of kerple has a loss for every seed, so none is chosen.",
        "Tuning and comparison share seeds (0)",
    ):
        assert expected in warned(results)


def test_differing_tuning_runs_are_warned_of(tmp_path):
    write_tuning(tmp_path, "rope", ROPE[:2])
    with pytest.raises(ReportError, match="no finished run: 4 that tune learning rates; run its command"):
        gather("made_up", tmp_path, None)
    write_compared(tmp_path, "rope", 0.002)
    other = {"name": "stdlib", "fingerprint": "beef", "vocabulary": 256}
    config = {"part": "tuning", "trainer": trainer(0.004), "evaluate": {"segments": 0}}
    write_run(tmp_path, "tune-other", seed=100, config=config, data=other)
    results = gather("made_up", tmp_path, None)
    assert "Tuning runs of rope differ in data: losses are not comparable." in warned(results)
    # The rate is left out because a seed was not run.
    (tuning,) = results.tunings
    assert tuning.tried[2].without == ("missing",)
    assert tuning.choice == Choice(Rates(0.002), RATE)  # the highest that was tried on every seed


def test_a_tuning_run_repeated_by_other_code_counts_once(tmp_path):
    write_compared(tmp_path, "rope", 0.002)
    write_tuning(tmp_path, "rope", ROPE)
    write_tuning(tmp_path / "old", "rope", (1.0, 1.0, 1.0, 1.0), code="01d", finished="2025-01-01T00:00:00")
    for made in (tmp_path / "old" / "made_up").iterdir():
        manifest = read_manifest(made)
        other = made.rename(tmp_path / "made_up" / f"old-{made.name}")
        RunRecord(other, manifest).update(run=other.name)
    results = gather("made_up", tmp_path, None)
    (tuning,) = results.tunings
    assert tuning.choice == Choice(Rates(0.002), ())
    assert "Tuning runs of rope differ" not in warned(results)
    # If the newer one diverged, the loss of the older one does not count either.
    assert tuning.tried[3].without == ("diverged",)
    assert row_of(results, "old-tune-rope-0.002-100")["status"] == "superseded"
