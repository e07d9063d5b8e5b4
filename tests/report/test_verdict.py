"""The sentences of a verdict, shared ranks, and times that bound a ratio."""

import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from poslab.analysis.profile import profile
from poslab.analysis.results import Results, gather
from poslab.analysis.sheets import arms_sheet
from poslab.record.schema import EXTRAPOLATION
from poslab.report.cells import rank
from poslab.report.sections.convergence import performance_profile
from poslab.report.sections.overview import differences_table
from poslab.report.verdict import at_length, convergence, extrapolation, left_out
from support.records import BATCH, BUDGET, STEPS, L, length_rows, plan, words, write_run

Effects = tuple[float, float]  # of an arm on its loss at L, and for each doubling past L
ROPE = {"rope": (0.0, 0.15)}


def study(
    runs: Path, arms: dict[str, Effects], seeds: int, learned: str = "", missing: dict[str, int] | None = None
) -> Results:
    """Write runs with noise of a hundredth; `missing` is the first seed from which an arm's runs diverged."""
    for pos, (shift, slope) in arms.items():
        for seed in range(seeds):
            noise = random.Random(f"{pos} {seed}")
            here = shift + random.Random(seed).gauss(0, 0.03) + noise.gauss(0, 0.01)
            lost = seed >= (missing or {}).get(pos, seeds)
            sliding = {2.0**i: 2 + slope * i + (noise.gauss(0, 0.005) if i else 0) for i in range(4)}
            facts = {"status": "diverged", "reason": "the loss is not finite"} if lost else {}
            if pos == learned:
                sliding, facts = {1.0: 2.0}, {**facts, "max_length": L}
            write_run(runs, f"{pos}-{seed}", pos, seed, shift=here, sliding=sliding, **facts)
    plan(runs, [f"{pos}-0" for pos in arms], "rope")
    return gather("made_up", runs, None)


def test_sentences_name_arms_only_for_claims(tmp_path):
    arms = {**ROPE, "alibi": (-0.1, -0.01), "t5": (-0.05, 0.08)}
    results = study(tmp_path / "whole", arms, 5)
    (gains,) = extrapolation(results)
    assert gains.endswith("falls for alibi; it rises for rope and t5.")
    (sooner,) = convergence(results)
    assert sooner.endswith("sooner by alibi and t5.")
    assert "is lower for alibi and t5." in at_length(results)
    # The arm with the fewest seeds makes it exploratory, though the leading alibi has 5.
    assert "3 to 5 seeds, so exploratory" in words(study(tmp_path / "few", arms, 5, missing={"t5": 3}))


@pytest.mark.parametrize(
    ("seeds", "others", "places"),
    [
        (1, {f"arm{i}": (0.0, 0.15) for i in range(15)}, ["–"] * 16),
        (3, {f"arm{i}": (0.0, 0.15) for i in range(15)}, ["1–16"] * 16),
        (3, {"alibi": (-0.1, -0.01), "kerple": (-0.1, -0.01)}, ["3", "1–2", "1–2"]),
    ],
)
def test_with_noise_or_single_runs_there_is_no_winner(tmp_path, seeds, others, places):
    results = study(tmp_path, ROPE | others, seeds)
    assert [rank(row, "rank").text for row in arms_sheet(results)[1]] == places
    assert ("no winner is claimed" in words(results)) == (seeds == 1)
    assert len(words(results)) < 1200
    found = {item.reading for item in results.comparisons if item.figure == "sliding_8x"}
    assert ("lower (exploratory)" in found) == ("alibi" in others)


def test_uncompared_arms_are_named_with_the_reason(tmp_path):
    alone = words(study(tmp_path / "alone", ROPE, 3))
    assert alone.startswith("Nothing is compared with rope, as it is the only arm")
    ends = study(tmp_path / "learned", {**ROPE, "learned": (-0.1, 0.0)}, 3, learned="learned")
    assert left_out(ends, ["rope"]) == "; not compared: learned (not defined there)"
    text = words(ends)
    assert text.startswith("Nothing is compared with rope in sliding windows at 8 L, as no other arm")
    assert "At L, the loss over whole windows, against rope, is " in text
    near = {**ROPE, "alibi": (0.0, 0.1501), "learned": (-0.1, 0.0)}
    assert "rope and alibi are not separated" in words(study(tmp_path / "near", near, 3, learned="learned"))
    write_run(tmp_path / "equal", "rope")
    write_run(tmp_path / "equal", "alibi", "alibi")
    assert "lies between 2.060 (alibi) and 2.060 (rope)" in words(gather("made_up", tmp_path / "equal", None))
    arms = {**ROPE, "alibi": (-0.1, -0.01), "t5": (0.0, 0.1)}
    lost = words(study(tmp_path / "lost", arms, 3, missing={"alibi": 0, "t5": 0}))
    assert lost.startswith("Nothing is compared with rope, as no other arm has a comparable loss")
    assert "later, if at all, by alibi" in lost
    assert "not compared: alibi and t5 (no finished run)." in lost


def test_documents_are_named_if_only_the_loss_at_L_compares(tmp_path):
    random_noise = random.Random(0)
    for pos, sliding in (("rope", {1.0: 2.0, 8.0: 2.0}), ("learned", {1.0: 2.1})):
        for seed in range(2):
            rows = length_rows(sliding, shift=random_noise.gauss(0, 0.01))
            tables = {EXTRAPOLATION: [{**row, "document": row["segment"]} for row in rows]}
            write_run(tmp_path, f"{pos}-{seed}", pos, seed, sliding=sliding, tables=tables)
    results = gather("made_up", tmp_path, "rope")
    assert not results.pairs
    assert "over seeds and 3 documents" in differences_table(results).caption


def test_arms_without_common_seeds_are_named_as_such(tmp_path):
    for pos, seeds in (("rope", (0, 1, 2)), ("alibi", (2, 3)), ("t5", (5, 6))):
        for seed in seeds:
            write_run(tmp_path, f"{pos}-{seed}", pos, seed)
    results = gather("made_up", tmp_path, "rope")
    assert "not compared: t5 (without a seed in common)" in words(results)
    (times,) = convergence(results)
    assert "by alibi (2 of 2 runs)" in times
    assert times.endswith("it is not compared for t5.")
    assert "clearly" not in times  # with one seed in common nothing is tested


def test_a_run_that_came_late_or_diverged_bounds_the_ratio(tmp_path):
    """The second run reaches the target too late to confirm it, so its time is that spent above it."""
    for seed in range(2):
        write_run(tmp_path, f"rope-{seed}", seed=seed)
    write_run(tmp_path, "late-0", pos="late")
    write_run(tmp_path, "late-1", pos="late", seed=1, curve=[3.0] * 99 + [2.0, 2.0])
    write_run(tmp_path, "gone-0", pos="gone")
    write_run(tmp_path, "gone-1", pos="gone", seed=1, status="diverged", reason="the loss is not finite")
    results = gather("made_up", tmp_path, "rope")
    by_label = {item.arm.label: item for item in results.arms}
    assert by_label["late"].times[""][1].tokens == 98 * BATCH * L
    assert by_label["gone"].times[""][1].tokens == BUDGET == STEPS * BATCH * L
    assert by_label["late"].reached == by_label["gone"].reached == {"_50": (1, 2), "": (1, 2), "_90": (1, 2)}
    row = next(row for row in arms_sheet(results)[1] if row["arm"] == "gone")
    assert row["tokens_to_target_ratio"] is row["tokens_to_target_ratio_high"] is None
    assert row["tokens_to_target_ratio_kind"] == "at_least"
    assert row["tokens_to_target_ratio_low"] == by_label["gone"].ratios[""].low
    turned = {item.arm.label: item for item in gather("made_up", tmp_path, "gone").arms}
    assert (turned["rope"].ratios[""].kind, turned["late"].ratios[""].kind) == ("at_most", "none")


def test_a_profile_counts_targets_within_a_factor_of_the_fastest(tmp_path):
    """rope falls to 2.5, 2.25 and 2.1; fast is 0.4 lower throughout; slow reaches only the first, last."""
    write_run(tmp_path, "rope")
    write_run(tmp_path, "fast", pos="fast", shift=-0.4)
    write_run(tmp_path, "slow", pos="slow", curve=[3 - i / 190 for i in range(101)])
    results = gather("made_up", tmp_path, "rope")
    (chart,) = performance_profile(results)
    shares = {series.label: {p.x: p.mean for p in series.points} for series in chart.series}
    assert set(shares["fast"].values()) == {1.0}
    times = {item.arm.label: item.times for item in results.arms}
    factors = [
        times["rope"][suffix][0].tokens / times["fast"][suffix][0].tokens for suffix in ("_90", "", "_50")
    ]
    last = times["slow"]["_50"][0].tokens / times["fast"]["_50"][0].tokens
    assert shares["rope"] == pytest.approx(
        {1.0: 0, factors[0]: 1 / 3, factors[1]: 2 / 3, factors[2]: 1, last: 1}
    )
    assert list(shares["slow"].values()) == pytest.approx([0, 0, 0, 0, 1 / 3])
    assert chart.stepped
    assert not performance_profile(study(tmp_path / "alone", ROPE, 2))


def test_a_target_that_no_arm_reached_is_solved_by_none_and_one_at_the_start_only_by_the_fastest():
    """Each arm is at the first target after 0 or 5 tokens, at the second after 10, and never at the third."""
    arms = [
        SimpleNamespace(
            times={"": {seed: SimpleNamespace(tokens=n, reached=n < 99) for seed, n in enumerate(tokens)}}
        )
        for tokens in ([0, 10, 99], [5, 10, 99])
    ]
    found = profile(arms)
    assert [[point.mean for point in of_arm] for of_arm in found.solved] == [[2 / 3, 2 / 3], [1 / 3, 1 / 3]]


def test_times_at_another_budget_are_not_compared(tmp_path):
    """Runs with four times the steps take four times the tokens to the target, in every seed."""
    for pos, lag in (("rope", 0.0), ("t5", 0.05)):
        for steps in (STEPS, 4 * STEPS):
            for seed in range(5):
                by = random.Random(f"{pos} {steps} {seed}").gauss(lag, 0.005)
                curve = [3 - i / steps + by for i in range(steps + 1)]
                config = {"trainer": {"max_steps": steps, "batch_size": BATCH, "learning_rate": 0.002}}
                facts = {"config": config, "tokens": BATCH * L * steps, "flops": 6e4 * steps}
                write_run(tmp_path, f"{pos}-{steps}-{seed}", pos, seed, curve=curve, shift=by, **facts)
    (text,) = convergence(gather("made_up", tmp_path, f"rope {STEPS} steps"))
    assert text.endswith(
        "later, if at all, by t5 100 steps; it is not compared for rope 400 steps and t5 400 steps."
    )
