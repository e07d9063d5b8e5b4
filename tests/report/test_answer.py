"""The first screen: sentences that claim no more than the tests allow, a table by rank, colours that stay."""

from pathlib import Path

import pytest

from poslab.analysis.palette import arm_numbers, look
from poslab.analysis.results import Results, gather
from poslab.config.compose import arms
from poslab.report.sections.answer import answer, sentences, table
from poslab.report.verdict import without_winner
from support.commands import ROOT
from support.records import BUDGET, L, plan, write_protocols, write_run

HELD = {"rope": (2.0, 3.0), "alibi": (2.1, 2.1), "none": (2.3, 2.6)}  # the loss at L and at 8 L


def study(
    runs: Path, losses: dict[str, tuple[float, float]], seeds: int = 5, noise: float = 0.001
) -> Results:
    names = []
    for place, (pos, (at, far)) in enumerate(losses.items()):
        for seed in range(seeds):
            by = 0.01 * seed + noise * ((3 * seed + 2 * place * seed * seed) % 7)
            sliding = {0.5: at + 0.1 + by, 1.0: at + by, 4.0: (at + far) / 2 + by, 8.0: far + by}
            names.append(f"{pos}-{seed}")
            write_run(runs, names[-1], pos, seed, sliding=sliding)
    plan(runs, names, "rope")
    return gather("made_up", runs, None)


def test_the_best_the_one_that_keeps_its_loss_and_the_best_at_length(tmp_path):
    first, kept, at_length = sentences(study(tmp_path, HELD))
    assert first.startswith("On this text, at 8 times the training length, ")
    assert "the loss of alibi is lower than any other compared arm's" in first
    assert kept == "The loss stays within 5 % of its value at L only for alibi."
    assert "whole windows, against rope, is higher for " in at_length


def test_of_arms_that_may_not_need_L_it_is_not_said_that_they_keep_their_loss(tmp_path):
    """Where L/2 is not measured, as of an odd L."""
    for pos, (at, far) in HELD.items():
        for seed in range(5):
            sliding = {1.0: at + 0.01 * seed, 8.0: far + 0.01 * seed}
            write_run(tmp_path, f"{pos}-{seed}", pos, seed, sliding=sliding)
    assert not any("stays within" in text for text in sentences(gather("made_up", tmp_path, "rope")))


def test_arms_that_noise_covers_share_their_place(tmp_path):
    """alibi and t5 differ by less than their seeds do; rope is above both."""
    noisy = study(tmp_path / "a", {**HELD, "t5": (2.1, 2.1005)}, noise=0.004)
    first, kept, at_length = sentences(noisy)
    assert first.endswith("t5 has the lowest mean loss, not separated from alibi.")
    assert kept == "The loss stays within 5 % of its value at L only for alibi and t5."
    assert "higher for " in at_length
    # More than a sentence names: the lowest first, then those that it is not separated from.
    several = {"rope": (2.0, 3.0), "t5": (2.1, 2.1005), "fire": (2.1, 2.1003), "kerple": (2.1, 2.1002)}
    first = next(sentences(study(tmp_path / "c", {**several, "alibi": (2.1, 2.1)}, noise=0.004)))
    lowest = "kerple has the lowest mean loss, not separated from fire, alibi and t5."
    assert first.endswith(lowest)
    nothing = study(tmp_path / "b", {"rope": (2.0, 2.0), "alibi": (2.0, 2.001)}, noise=0.01)
    first, kept, at_length = sentences(nothing)
    assert first.endswith("the two arms are not separated.")
    assert kept.endswith(" for every arm measured there.")
    assert at_length.endswith(" is within noise for alibi.")


def test_of_different_seeds_the_lowest_mean_is_that_over_shared_ones(tmp_path):
    """alibi is above rope in each of its three seeds, which are easier ones than the other two of rope."""
    for pos, above in (("rope", 0.0), ("alibi", 0.05), ("none", 1.0)):
        for seed in range(3 if pos == "alibi" else 5):
            loss = 2.0 + 0.5 * (seed > 2) + above * (1 + 0.5 * seed)
            write_run(tmp_path, f"{pos}-{seed}", pos, seed, sliding={1.0: 2.0, 8.0: loss})
    results = gather("made_up", tmp_path, "rope")
    first = next(sentences(results))
    assert "rope has the lowest mean loss over shared seeds, not separated from alibi" in first
    assert results.arms[0].mean("sliding_8x") < results.reference.mean("sliding_8x")


@pytest.mark.parametrize(
    ("seeds", "start"), [(1, "In one run each, so no winner is claimed"), (3, "3 seeds")]
)
def test_few_seeds_are_said_first(tmp_path, seeds, start):
    made = answer(study(tmp_path, HELD, seeds))
    assert made.sentences[0].startswith(start)
    assert dict(made.belief)["Seeds per arm"] == ("1: no interval, no winner" if seeds == 1 else "3")


def test_at_length_the_loss_is_that_over_whole_windows(tmp_path):
    """t5 is clearly below rope over whole windows, and above it in the last positions of a window."""
    for seed in range(5):
        by = 0.01 * seed
        for pos, end, whole in (("rope", 2.0, 2.2), ("t5", 2.01 + 0.001 * seed, 2.1 + 0.001 * seed)):
            sliding, plain = {1.0: end + by, 8.0: 3.0 + end + by}, {1.0: whole + by, 8.0: 3.0 + end + by}
            write_protocols(tmp_path, f"{pos}-{seed}", sliding, plain, pos=pos, seed=seed)
    results = gather("made_up", tmp_path, "rope")
    assert {test.figure for test in results.claims} >= {"sliding_8x", "loss_1x"}
    assert "sliding_1x" not in {test.figure for test in results.claims}
    last = list(sentences(results))[-1]
    assert "over whole windows" in last
    assert "against rope, is lower for t5." in last


def test_an_interval_that_leaves_out_0_is_not_called_noise(tmp_path):
    """alibi's interval leaves 0 out, but not p once it is corrected; fire's holds 0; t5 is found."""
    far = {"rope": 0.0, "alibi": 0.1, "fire": 0.0, "t5": -2.0, "none": 2.0}
    by_seed = {"alibi": (0.0, 0.04, -0.035), "fire": (0.1, -0.1, 0.02)}
    for pos, at_8 in far.items():
        for seed in range(3):
            own = by_seed.get(pos, (0.0, 0.001, -0.001))[seed]
            write_run(tmp_path, f"{pos}-{seed}", pos, seed, sliding={1.0: 2.0, 8.0: 3.0 + at_8 + own})
    results = gather("made_up", tmp_path, "rope")
    over = {item.arm.label: item for item in results.tested}
    assert abs(over["alibi"].difference.mean) > (over["alibi"].difference.half_width or 0)
    shown = {row[0].text: row[-1].text for row in table(results).rows}
    assert shown["alibi"].endswith(", not separated (3 seeds)")
    assert shown["fire"].endswith(" (noise)")
    assert "noise" not in shown["t5"]


def test_the_first_sentence_names_the_arms_that_it_leaves_out(tmp_path):
    """Of another text, of another training length, not defined past L, and without a finished run."""
    for seed in range(5):
        end = {1.0: 2.0 + 0.01 * seed, 8.0: 2.5 + 0.01 * seed}
        write_run(tmp_path, f"rope-{seed}", seed=seed, sliding=end)
        better = {1.0: 2.0 + 0.01 * seed, 8.0: 2.0 + 0.011 * seed}
        write_run(tmp_path, f"alibi-{seed}", "alibi", seed, sliding=better)
        other = {"name": "other", "fingerprint": "beef", "vocabulary": 256}
        write_run(tmp_path, f"t5-{seed}", "t5", seed, data=other, sliding={1.0: 1.0, 8.0: 1.0})
        longer = {"context_length": 2 * L}
        write_run(tmp_path, f"fire-{seed}", "fire", seed, config=longer, sliding={1.0: 1.1, 8.0: 1.1})
        write_run(tmp_path, f"learned-{seed}", "learned", seed, sliding={1.0: 2.0}, max_length=L)
        write_run(tmp_path, f"gone-{seed}", "gone", seed, status="diverged", reason="the loss is not finite")
    results = gather("made_up", tmp_path, "rope")
    named = next(sentences(results)).partition("not compared: ")[2]
    assert f"t5 L={L} (another text)" in named
    assert f"fire L={2 * L} (trained at L = {2 * L}, " in named
    assert f"learned L={L} (not defined there)" in named
    assert f"gone L={L} (no finished run)" in named
    assert "rope" not in named
    alone = gather("made_up", tmp_path, "t5")
    assert "(another text)" in without_winner(alone).partition("not compared: ")[2]


def test_nothing_is_claimed_where_the_reference_has_no_finished_run(tmp_path):
    """It says which losses compare: here those of t5 are of another text."""
    names = []
    for pos, text, loss in (("rope", "talks", 2.0), ("alibi", "talks", 2.5), ("t5", "code", 1.0)):
        for seed in range(5):
            names.append(f"{pos}-{seed}")
            at = {1.0: loss + 0.01 * seed, 8.0: loss + 0.013 * seed}
            data = {"name": text, "fingerprint": text, "vocabulary": 256}
            status = "diverged" if pos == "rope" else "done"
            write_run(tmp_path, names[-1], pos, seed, sliding=at, data=data, status=status)
    plan(tmp_path, names, "rope", primary="sliding_8x")
    results = gather("made_up", tmp_path, None)
    assert (results.primary, results.ranks) == (None, {})
    assert any("has no finished run" in said for said in sentences(results))


def test_a_small_budget_is_said_beside_the_result(tmp_path):
    """On 1,000 parameters, and on so few that each sees 160 tokens."""
    small = dict(answer(study(tmp_path / "a", HELD)).belief)
    assert f"({BUDGET / 1000:.1f} per parameter)" in small["Model and budget"]
    assert "may shrink or turn" in small["Early training"]
    for pos, parameters in (("rope", 1000), ("alibi", 10)):  # 1.6 and 160
        write_run(tmp_path / "both", pos, pos, parameters=parameters)
    both = dict(answer(gather("made_up", tmp_path / "both", "rope")).belief)
    assert "20 tokens per parameter in some arms, so" in both["Early training"]
    for parameters in (10, 81):  # 160 and 19.8, which is said as 20
        folder = tmp_path / f"{parameters}"
        for pos in ("rope", "alibi"):
            write_run(folder, pos, pos, parameters=parameters)
        assert "Early training" not in dict(answer(gather("made_up", folder, "rope")).belief)


def test_the_table_has_five_columns_and_goes_by_rank(tmp_path):
    shown = table(study(tmp_path, HELD))
    assert [column.title for column in shown.columns] == ["Arm", "Rank", "L", "8 L", "Against rope"]
    ranks = {row[0].text: row[1].text for row in shown.rows}
    assert list(ranks.items()) == [("alibi", "1"), ("none", "2"), ("rope", "3")]
    assert shown.rows[0][4].text.startswith("−0.9")
    assert shown.rows[2][4].text == "reference"


def test_the_first_figure_is_the_loss_that_is_tested(tmp_path):
    results = study(tmp_path, HELD)
    chart = answer(results).chart
    assert chart.y_label == "Loss (nats per token)"
    ends = {series.label: series.points[-1].mean for series in chart.series}
    assert ends == {item.arm.label: item.mean("sliding_8x") for item in results.arms}


def test_a_scheme_looks_the_same_in_every_study():
    few = arm_numbers([("alibi", "flash"), ("rope", "flash")])
    more = arm_numbers([("t5", "flash"), ("rope", "flash"), ("alibi", "flash"), ("rope", "linear")])
    assert few == [more[2], more[1]]
    assert look(more[3]).light == look(more[1]).light  # the colour is the scheme's,
    assert look(more[3]).dash != look(more[1]).dash  # the dash the attention's
    assert look(arm_numbers([("rope", "softmax")])[0]) == look(more[1])


def test_no_two_arms_of_a_study_look_the_same():
    """Every scheme of conf/pos under two attentions, and one scheme at several learning rates."""
    every = [(pos, attention) for attention in ("flash", "linear") for pos in arms(ROOT / "conf" / "pos")]
    looks = [look(number) for number in arm_numbers(every)]
    assert len(set(looks)) == len(looks)
    assert len({look(number) for number in arm_numbers([("alibi", "flash")] * 6)}) == 6


@pytest.mark.parametrize("own", ["logarithmic", "slope", "windows", "mine"])
def test_a_scheme_of_another_package_has_a_colour_of_its_own(own):
    others = [("alibi", "flash"), ("rope", "flash"), ("t5", "flash")]
    arms = [(own, "cold"), (own, "flash"), ("alibi", "cold"), *others]
    looks = [look(number) for number in arm_numbers(arms)]
    assert looks[0].light == looks[1].light
    assert looks[0].light not in {each.light for each in looks[2:]}
    assert looks[3:] == [look(arm_numbers([arm])[0]) for arm in others]
