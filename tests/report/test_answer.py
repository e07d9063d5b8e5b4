"""The first screen: sentences follow the tests, the table is sorted by rank, and colours are stable."""

from pathlib import Path

import pytest

from poslab.analysis.palette import arm_numbers, look
from poslab.analysis.results import Results, gather
from poslab.config.compose import arms
from poslab.report.sections.answer import answer, sentences
from support.commands import ROOT
from support.records import BUDGET, plan, write_run

HELD = {"rope": (2.0, 3.0), "alibi": (2.1, 2.1), "none": (2.3, 2.6)}  # the loss at L and at 8 L


def study(
    runs: Path, losses: dict[str, tuple[float, float]], seeds: int = 5, noise: float = 0.001
) -> Results:
    for place, (pos, (at, far)) in enumerate(losses.items()):
        for seed in range(seeds):
            by = 0.01 * seed + noise * ((3 * seed + 2 * place * seed * seed) % 7)
            sliding = {0.5: at + 0.1 + by, 1.0: at + by, 4.0: (at + far) / 2 + by, 8.0: far + by}
            write_run(runs, f"{pos}-{seed}", pos, seed, sliding=sliding)
    plan(runs, [f"{pos}-0" for pos in losses], "rope")
    return gather("made_up", runs, None)


@pytest.mark.parametrize(
    ("seeds", "start", "counted"),
    [
        (1, "There is one run per arm, so no winner is claimed", "1: no interval, no winner"),
        (3, "3 seeds, so exploratory: ", "3"),
        (5, "On this text, at 8 times the training length, ", "5"),
    ],
)
def test_the_first_screen_claims_what_its_seeds_allow(tmp_path, seeds, start, counted):
    made = answer(results := study(tmp_path, HELD, seeds))
    belief = dict(made.belief)
    assert made.sentences[0].startswith(start)
    assert belief["Seeds per arm"] == counted
    assert f"({BUDGET / 1000:.1f} per parameter)" in belief["Model and budget"]
    assert "may shrink or reverse" in belief["Early training"]
    ends = {series.label: series.points[-1].mean for series in made.chart.series}
    assert ends == {item.arm.label: item.mean("sliding_8x") for item in results.arms}
    if seeds == 5:
        first, kept, at_length = made.sentences
        assert "the loss of alibi is lower than any other compared arm's" in first
        assert kept.endswith("the loss stays within 5 % of its value at L up to 8 L for 1 of 3: alibi.")
        assert "whole windows, against rope, is higher for " in at_length
        assert [column.title for column in made.table.columns] == ["Arm", "Rank", "L", "8 L", "Against rope"]
        shown = [[row[0].text, row[1].text, row[4].text] for row in made.table.rows]
        assert [row[:2] for row in shown] == [["alibi", "1"], ["none", "2"], ["rope", "3"]]
        assert (shown[0][2][:4], shown[2][2]) == ("−0.9", "reference")


def test_with_two_arms_the_other_is_named(tmp_path):
    first, *_ = sentences(study(tmp_path, {"rope": (2.0, 3.0), "alibi": (2.1, 2.1)}))
    assert "the loss of alibi is lower than that of rope" in first


def test_arms_within_noise_share_their_place(tmp_path):
    several = {"rope": (2.0, 3.0), "t5": (2.1, 2.1005), "fire": (2.1, 2.1003), "kerple": (2.1, 2.1002)}
    first, kept, _ = sentences(study(tmp_path / "a", {**several, "alibi": (2.1, 2.1)}, noise=0.004))
    assert first.endswith("kerple has the lowest mean loss, not separated from fire, alibi and t5.")
    assert kept.endswith("of its value at L up to 8 L for 4 of 5: t5, fire, kerple and 1 more.")
    nothing = study(tmp_path / "b", {"rope": (2.0, 2.0), "alibi": (2.0, 2.001)}, noise=0.01)
    first, kept, at_length = sentences(nothing)
    assert first.endswith("alibi and rope are not separated.")
    assert kept.endswith(" for 2 of 2: rope and alibi.")
    assert at_length.endswith(" is within noise for alibi.")


def test_with_different_seeds_the_lowest_mean_is_over_shared_ones(tmp_path):
    """alibi is above rope in each of its three seeds; the other two seeds of rope are harder."""
    for pos, above in (("rope", 0.0), ("alibi", 0.05), ("none", 1.0)):
        for seed in range(3 if pos == "alibi" else 5):
            loss = 2.0 + 0.5 * (seed > 2) + above * (1 + 0.5 * seed)
            write_run(tmp_path, f"{pos}-{seed}", pos, seed, sliding={1.0: 2.0, 8.0: loss})
    results = gather("made_up", tmp_path, "rope")
    first = next(sentences(results))
    assert "rope has the lowest mean loss, not separated from alibi" in first
    assert results.arms[0].mean("sliding_8x") < results.reference.mean("sliding_8x")


def test_nothing_is_claimed_if_the_reference_has_no_finished_run(tmp_path):
    """The page says which losses compare: here t5 was trained on another text."""
    for pos, text, loss in (("rope", "talks", 2.0), ("alibi", "talks", 2.5), ("t5", "code", 1.0)):
        for seed in range(2):
            at = {1.0: loss + 0.01 * seed, 8.0: loss + 0.013 * seed}
            data = {"name": text, "fingerprint": text, "vocabulary": 256}
            status = "diverged" if pos == "rope" else "done"
            write_run(tmp_path, f"{pos}-{seed}", pos, seed, sliding=at, data=data, status=status)
    plan(tmp_path, ["rope-0"], "rope", primary="sliding_8x")
    results = gather("made_up", tmp_path, None)
    assert (results.primary, results.ranks) == (None, {})
    assert any("has no finished run" in sentence for sentence in sentences(results))


@pytest.mark.parametrize(
    ("parameters", "said"),
    [((1000, 10), "20 tokens per parameter in some arms, so"), ((10, 10), ""), ((81, 81), "")],
)
def test_few_tokens_per_parameter_are_called_early_training(tmp_path, parameters, said):
    """1.6, 160 and 19.8, which is printed as 20."""
    for pos, each in zip(("rope", "alibi"), parameters, strict=True):
        write_run(tmp_path, pos, pos, parameters=each)
    early = dict(answer(gather("made_up", tmp_path, "rope")).belief).get("Early training", "")
    assert said in early
    assert bool(early) == bool(said)


def test_a_scheme_looks_the_same_in_every_study():
    few = arm_numbers([("alibi", "flash"), ("rope", "flash")])
    more = arm_numbers([("t5", "flash"), ("rope", "flash"), ("alibi", "flash"), ("rope", "linear")])
    assert few == [more[2], more[1]]
    assert look(more[3]).light == look(more[1]).light  # the scheme determines the colour,
    assert look(more[3]).dash != look(more[1]).dash  # the attention the dash
    assert look(arm_numbers([("rope", "softmax")])[0]) == look(more[1])


def test_no_two_arms_of_a_study_look_the_same():
    """Every scheme of conf/pos with two attentions, and one scheme at several learning rates."""
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
