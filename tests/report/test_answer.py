"""The first screen: sentences that claim no more than the tests allow, a table by rank, colours that stay."""

from pathlib import Path

import pytest

from poslab.analysis.palette import arm_numbers, look
from poslab.analysis.results import Results, gather
from poslab.config.compose import arms
from poslab.report.sections.answer import answer, sentences, table
from support.commands import ROOT
from support.records import plan, write_run

HELD = {"rope": (2.0, 3.0), "alibi": (2.1, 2.1), "none": (2.3, 2.6)}  # the loss at L and at 8 L


def study(
    runs: Path, losses: dict[str, tuple[float, float]], seeds: int = 5, noise: float = 0.001
) -> Results:
    names = []
    for place, (pos, (at, far)) in enumerate(losses.items()):
        for seed in range(seeds):
            by = 0.01 * seed + noise * ((3 * seed + 2 * place * seed * seed) % 7)
            sliding = {1.0: at + by, 2.0: (at + far) / 2 + by, 4.0: (at + far) / 2 + by, 8.0: far + by}
            names.append(f"{pos}-{seed}")
            write_run(runs, names[-1], pos, seed, sliding=sliding)
    plan(runs, names, "rope")
    return gather("made_up", runs, None)


def test_the_best_the_one_that_keeps_its_loss_and_the_best_at_length(tmp_path: Path) -> None:
    assert list(sentences(study(tmp_path, HELD))) == [
        "At 8 times the training length, the loss of alibi is lower than any other arm's.",
        "Only alibi keeps its loss within 5 % of what it is at L.",
        "At L itself, rope is the lowest.",
    ]


def test_arms_that_noise_covers_share_their_place(tmp_path: Path) -> None:
    """alibi and t5 differ by less than their seeds do; rope is above both."""
    noisy = study(tmp_path / "a", {**HELD, "t5": (2.1, 2.1005)}, noise=0.004)
    first, kept, at_length = sentences(noisy)
    assert first == (
        "At 8 times the training length, t5 and alibi have the lowest losses, not separated from each other."
    )
    assert kept == "Only alibi and t5 keep their loss within 5 % of what it is at L."
    assert at_length == "At L itself, rope is the lowest."
    # More than a sentence names: the lowest first, then those that it is not separated from.
    several = {"rope": (2.0, 3.0), "t5": (2.1, 2.1005), "fire": (2.1, 2.1003), "kerple": (2.1, 2.1002)}
    first = next(sentences(study(tmp_path / "c", {**several, "alibi": (2.1, 2.1)}, noise=0.004)))
    lowest = "kerple has the lowest mean loss, not separated from fire, alibi and t5."
    assert first == f"At 8 times the training length, {lowest}"
    nothing = study(tmp_path / "b", {"rope": (2.0, 2.0), "alibi": (2.0, 2.001)}, noise=0.01)
    assert list(sentences(nothing)) == [
        "At 8 times the training length, the two arms are not separated.",
        "Every arm that is defined there keeps its loss within 5 % of what it is at L.",
        "At L itself, no arm is separated below rope.",
    ]


@pytest.mark.parametrize(
    ("seeds", "start"), [(1, "In one run each, so no winner is claimed"), (3, "3 seeds")]
)
def test_few_seeds_are_said_first(tmp_path: Path, seeds: int, start: str) -> None:
    made = answer(study(tmp_path, HELD, seeds))
    assert made.sentences[0].startswith(start)
    assert dict(made.belief)["Seeds an arm"] == ("1: no interval, no winner" if seeds == 1 else "3")


def test_the_table_has_five_columns_and_goes_by_rank(tmp_path: Path) -> None:
    shown = table(study(tmp_path, HELD))
    assert [column.title for column in shown.columns] == ["Arm", "Rank", "L", "8 L", "Against rope"]
    assert [[cell.text for cell in row][:2] for row in shown.rows] == [
        ["alibi", "1"],
        ["none", "2"],
        ["rope", "3"],
    ]
    assert shown.rows[0][4].text.startswith("−0.9")
    assert shown.rows[2][4].text == "reference"


def test_the_first_figure_is_the_loss_that_is_tested(tmp_path: Path) -> None:
    results = study(tmp_path, HELD)
    chart = answer(results).chart
    assert chart is not None
    assert chart.y_label == "Loss (nats per token)"
    ends = {series.label: series.points[-1].mean for series in chart.series}
    assert ends == {item.arm.label: item.mean("sliding_8x") for item in results.arms}


def test_a_scheme_looks_the_same_in_every_study() -> None:
    few = arm_numbers([("alibi", "flash"), ("rope", "flash")])
    more = arm_numbers([("t5", "flash"), ("rope", "flash"), ("alibi", "flash"), ("rope", "linear")])
    assert few == [more[2], more[1]]
    assert look(more[3]).light == look(more[1]).light  # the colour is the scheme's,
    assert look(more[3]).dash != look(more[1]).dash  # the dash the attention's
    assert look(arm_numbers([("rope", "softmax")])[0]) == look(more[1])


def test_no_two_arms_of_a_study_look_the_same() -> None:
    """Every scheme of conf/pos under two attentions, and one scheme at several learning rates."""
    every = [(pos, attention) for attention in ("flash", "linear") for pos in arms(ROOT / "conf" / "pos")]
    looks = [look(number) for number in arm_numbers(every)]
    assert len(set(looks)) == len(looks)
    assert len({look(number) for number in arm_numbers([("alibi", "flash")] * 6)}) == 6


@pytest.mark.parametrize("own", ["logarithmic", "slope", "windows", "mine"])
def test_a_scheme_of_another_package_has_a_colour_of_its_own(own):
    arms = [
        (own, "cold"),
        (own, "flash"),
        ("alibi", "cold"),
        ("alibi", "flash"),
        ("rope", "flash"),
        ("t5", "flash"),
    ]
    looks = [look(number) for number in arm_numbers(arms)]
    assert looks[0].light == looks[1].light
    assert looks[0].light not in {each.light for each in looks[2:]}
    assert looks[3:] == [look(arm_numbers([arm])[0]) for arm in arms[3:]]
