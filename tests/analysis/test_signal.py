"""Signal and noise of a study's figures, compared with plain sums over its runs."""

import statistics
from pathlib import Path
from random import Random

import pytest

from poslab.analysis.results import gather
from poslab.analysis.signal import signals
from poslab.report.sections.signal import section
from support.records import write_run

LOSSES = {"rope": (2.0, 2.02, 1.99), "alibi": (2.5, 2.51, 2.5), "none": (2.01, 2.01, 1.99)}  # by seed


def write(runs: Path, seeds: int = 3) -> None:
    for pos in LOSSES:
        random = Random(pos)
        for seed, loss in enumerate(LOSSES[pos][:seeds]):
            curve = [loss + 0.5 - i / 200 + random.gauss(0, 0.01) for i in range(101)]
            write_run(runs, f"{pos}{seed}", pos, seed, sliding={1.0: loss, 2.0: loss}, curve=curve)


def test_signal_is_the_range_of_arms_and_noise_that_of_seeds_and_checkpoints(tmp_path):
    write(tmp_path)
    results = gather("made_up", tmp_path, "rope")
    found = {row.figure: row for row in signals(results)}
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
    assert not found["context_gain_2x"].decides  # the loss at 2 L equals that at L
    (table,) = section(results).tables
    assert "of the text" not in table.caption  # these records do not name documents


def test_a_study_with_one_seed_has_no_noise_and_no_section(tmp_path):
    write(tmp_path, 1)
    results = gather("made_up", tmp_path, "rope")
    assert {(row.seeds, row.apart, row.compared) for row in signals(results)} == {(None, 0, 0)}
    assert section(results) is None
