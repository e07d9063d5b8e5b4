"""Rotations changed after training, in the report: compared with the model as trained, in no other figure."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poslab.analysis.results import gather
from poslab.record import measures
from poslab.record.facts import Manifest
from poslab.record.losses import LossSum
from poslab.record.reader import Run
from poslab.report.sections.answer import sentences
from poslab.report.sections.rescalings import rescaled_table, section
from poslab.report.warnings import warnings_of
from support.records import GOOD, HIGH, LINES, L, rescaling_config, write_rescaled


def under(runs: Path) -> dict[str, dict[str, Any]]:
    """Return the row of the first arm's first seed by rescaling."""
    results = gather("made_up", runs, None)
    return {str(line.rows[0]["rescale"]): dict(line.rows[0]) for line in results.rescaled[0][1]}


def test_usable_lengths_are_relative_to_the_model_as_trained(tmp_path):
    write_rescaled(tmp_path, "a", LINES)
    found = under(tmp_path)
    trained, yarn, pi = found["none"], found["yarn"], found["pi"]
    assert (trained["usable_length"], trained["usable_length_1pct"]) == (2 * L, L)
    assert (yarn["usable_length"], yarn["usable_length_at_least"]) == (8 * L, True)
    assert (yarn["usable_length_1pct"], yarn["usable_length_1pct_at_least"]) == (0, False)
    # Flat to 8 L relative to its own loss at L, but usable nowhere.
    assert (pi["usable_length"], pi["usable_length_multiple"], pi["usable_length_at_least"]) == (0, 0, False)
    assert (trained["failure_position"], trained["plateau"]) == (2 * L, pytest.approx(2.0))
    assert (yarn["failure_position"], yarn["failure_position_found"]) == (None, False)
    assert yarn["failure_position_1pct"] == L
    assert (pi["failure_position"], pi["plateau"]) == (L, pytest.approx(2.5))
    # Relative to its own plateau it never rises: it reaches far, with a higher loss.
    assert (pi["rise_position"], pi["rise_position_found"]) == (None, False)
    assert trained["rise_position"] == trained["failure_position"]


def test_a_hard_stretch_of_text_is_not_a_lasting_rise():
    losses = {1.0: 2.0, 2.0: 2.2, 4.0: 2.0, 8.0: 2.5}  # up to each multiple of L
    positions = {
        p: LossSum(next(loss for k, loss in losses.items() if p < k * L), 1, None) for p in range(8 * L)
    }
    run = Run("a", "done", manifest=Manifest(config={"context_length": L}), positions=positions)
    assert measures.failure(run)["failure_position"] == L
    assert (measures.rise(run)["rise_position"], measures.rise(run)["rise_position_found"]) == (4 * L, True)
    flat = replace(run, positions={p: LossSum(2.0, 1, None) for p in range(8 * L)})
    ends = replace(run, positions={**flat.positions, 8 * L - 1: LossSum(math.inf, 1, None)})
    assert measures.failure(ends)["failure_position_found"]
    assert all(math.isfinite(item.loss) for item in measures.position_bins(ends))
    assert (measures.rise(flat)["rise_position"], measures.rise(flat)["rise_position_found"]) == (None, False)


def test_the_answer_names_the_rotation_that_helps_and_its_cost(tmp_path):
    write_rescaled(tmp_path, "a", LINES)
    *_, sentence = sentences(gather("made_up", tmp_path, None))
    for part in ("YaRN s=8", "1.570 instead of 2.500 at 8 L", "1.530 instead of 1.500 at L"):
        assert part in sentence
    worse = tmp_path / "worse"
    write_rescaled(worse, "b", {"pi": (dict.fromkeys(HIGH, 3.0), 2.5)}, config=rescaling_config("pi"))
    *_, sentence = sentences(gather("made_up", worse, None))
    assert sentence.startswith("No other rotation at evaluation is shown to lower")


def test_a_gain_within_the_noise_of_seeds_is_not_named(tmp_path):
    for folder, apart, named in (("sure", 0.01, True), ("noise", 0.5, False)):
        for seed in range(3):
            lines = {"pi": (HIGH | {8.0: 2.3 + apart * (seed - 1)}, 2.5)}
            config = rescaling_config("pi")
            write_rescaled(tmp_path / folder, f"rope-{seed}", lines, seed=seed, config=config)
        *_, sentence = sentences(gather("made_up", tmp_path / folder, None))
        assert ("instead of 2.500 at 8 L (−0.200 ± 0.0" in sentence) == named
        assert ("is shown to lower" in sentence) != named


def test_a_gain_beyond_noise_is_named_beside_a_larger_one_within_noise(tmp_path):
    for seed in range(3):
        lines = {
            "pi": (HIGH | {8.0: 2.2 + 0.5 * (seed - 1)}, 2.5),
            "yarn": (HIGH | {8.0: 2.3 + 0.01 * seed}, 2.5),
        }
        write_rescaled(tmp_path, f"rope-{seed}", lines, seed=seed, config=rescaling_config("pi", "yarn"))
    *_, sentence = sentences(gather("made_up", tmp_path, None))
    assert sentence.startswith("With YaRN s=8 at evaluation, the loss of rope is 2.310 instead of 2.500")


def test_a_rotation_of_some_seeds_is_compared_on_these_only(tmp_path):
    """For seed 0, which has it, the rotation is worse, though below the mean over all seeds."""
    config = rescaling_config("pi", "drop", steps=50)
    for seed in range(3):
        lines = {"pi": (HIGH | {8.0: 3.9}, 2.5)}
        if seed == 0:
            lines["drop"] = ({1.0: 1.8, 2.0: 1.9, 4.0: 2.3, 8.0: 2.8}, 2.5)
        write_rescaled(tmp_path, f"rope-{seed}", lines, shift=0.6 * seed, seed=seed, config=config)
    *_, sentence = sentences(gather("made_up", tmp_path, None))
    assert sentence.startswith("No other rotation at evaluation is shown to lower")


def test_rotations_without_losses_are_dashes_and_infinite_losses_are_named(tmp_path):
    lines = {"yarn": (GOOD | {8.0: math.inf}, 2.05), "pi{factor} /home/me/x": (GOOD, 2.2)}
    write_rescaled(tmp_path, "a", lines, config=rescaling_config("pi", "yarn"))
    results = gather("made_up", tmp_path, None)
    table = {row[1].text: [cell.text for cell in row[2:]] for row in rescaled_table(results).rows}
    assert table["interpolation s=8"] == ["–"] * 8
    assert table["YaRN s=8"][3] == "–"
    assert "pi{factor} x" in table
    assert under(tmp_path)["yarn"]["usable_length"] == 4 * L
    assert any("a has losses that are not finite" in text for text in warnings_of(results))


def test_a_line_fails_5_percent_above_the_trained_plateau(tmp_path):
    write_rescaled(tmp_path, "a", LINES)
    results = gather("made_up", tmp_path, None)
    (chart,) = (chart for chart in section(results).charts if chart.name == "rescaled_loss_by_position")
    plateau = results.rescaled[0][1][0].mean("plateau")
    assert [panel.level for panel in chart.panels] == [pytest.approx(1.05 * plateau)]
    assert {row["failure_level"] for row in chart.rows} == {panel.level for panel in chart.panels}
