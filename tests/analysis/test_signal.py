"""Signal and noise of a study's figures, against plain sums over its runs."""

import statistics
from pathlib import Path
from random import Random

import pytest

from poslab.analysis.results import gather
from poslab.analysis.signal import pooled, signals
from poslab.report.sections.signal import section
from support.records import BATCH, write_run

LOSSES = {"rope": (2.0, 2.02, 1.99), "alibi": (2.5, 2.51, 2.5), "none": (2.01, 2.01, 1.99)}  # by seed


def write(runs: Path, seeds: int = 3) -> None:
    for pos, losses in LOSSES.items():
        random = Random(pos)
        for seed, loss in list(enumerate(losses))[:seeds]:
            curve = [loss + 0.5 - i / 200 + random.gauss(0, 0.01) for i in range(101)]
            write_run(runs, f"{pos}{seed}", pos, seed, sliding={1.0: loss, 2.0: loss}, curve=curve)


def test_a_figure_has_the_range_of_its_arms_over_the_noise_of_seeds_and_checkpoints(tmp_path):
    write(tmp_path)
    results = gather("made_up", tmp_path, "rope")
    found = {one.figure: one for one in signals(results)}
    assert list(found) == ["loss_1x", "sliding_2x", "loss_2x", "context_gain_2x", "validation_loss", "aulc"]
    rows = {item.arm.label: [row["sliding_2x"] for row in item.rows] for item in results.arms}
    means = [statistics.mean(losses) for losses in rows.values()]
    tested = found["sliding_2x"]
    assert tested.spread == pytest.approx(max(means) - min(means))
    assert tested.seeds == pytest.approx(statistics.mean(map(statistics.variance, rows.values())) ** 0.5)
    assert (tested.apart, tested.compared) == (1, 2)
    assert tested.checkpoints is None
    last = [[at.loss for at in run.validations[-5:]] for run in results.finished]
    assert found["validation_loss"].checkpoints == pytest.approx(
        statistics.mean(map(statistics.variance, last)) ** 0.5
    )
    assert not found["context_gain_2x"].decides  # the loss at 2 L is that at L
    shown = section(results)
    (said,) = shown.findings
    assert said.startswith(
        "At this budget, each figure tested by itself, an arm is told apart from the reference in "
    )


def test_where_nothing_is_told_apart_the_sentence_says_so_and_no_more(tmp_path):
    for seed in range(3):
        write_run(tmp_path, f"rope{seed}", "rope", seed, shift=0.01 * seed)
        write_run(tmp_path, f"none{seed}", "none", seed, shift=0.01 * seed**2)
    (said,) = section(gather("made_up", tmp_path, "rope")).findings
    assert said.startswith(
        "At this budget, each figure tested by itself, no arm is told apart from the reference in "
    )


def test_of_one_seed_no_figure_is_said_to_decide(tmp_path):
    write(tmp_path, seeds=1)
    results = gather("made_up", tmp_path, "rope")
    assert {(one.seeds, one.apart, one.compared) for one in signals(results)} == {(None, 0, 0)}
    shown = section(results)
    assert "not known" in shown.findings[0]


def test_a_reference_of_one_seed_beside_arms_of_several_is_no_study_of_one_seed(tmp_path):
    write(tmp_path)
    write_run(tmp_path, "t5-0", "t5")
    (said,) = section(gather("made_up", tmp_path, "t5")).findings
    assert said.startswith("No test over two seeds or more: ")


def test_each_budget_has_its_own_noise(tmp_path):
    """At the second, arms lie ten times as far apart."""
    for steps, apart in ((100, 0.01), (400, 0.1)):
        trainer = {"max_steps": steps, "batch_size": BATCH, "learning_rate": 0.1}
        for i, pos in enumerate(("rope", "alibi")):
            for seed, first in enumerate(LOSSES["rope"]):
                loss = first + i * apart + i * seed * 0.001
                facts = {"sliding": {1.0: loss, 2.0: loss}, "flops": 6e6 * steps}
                write_run(tmp_path, f"{pos}{steps}{seed}", pos, seed, config={"trainer": trainer}, **facts)
    at_length = [one for one in signals(gather("made_up", tmp_path, None)) if one.figure == "loss_1x"]
    assert [round(one.spread, 2) for one in at_length] == [0.01, 0.1]
    assert at_length[0].share == pytest.approx(at_length[1].share / 4)


def test_pooled_leaves_out_what_groups_differ_by():
    assert pooled([[1.0, 2.0], [11.0, 12.0]]) == pytest.approx(0.5**0.5)
    assert pooled([[1.0], [2.0]]) is None
