"""Rotations changed after training, in the report: held against the model as trained, in no other figure."""

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poslab.analysis.rescalings import label
from poslab.analysis.results import Results, gather
from poslab.record import measures
from poslab.record.facts import Manifest
from poslab.record.losses import LossSum
from poslab.record.reader import Run, load
from poslab.record.schema import RESCALED
from poslab.report.sections.answer import sentences
from poslab.report.sections.rescalings import findings, rescaled_table
from poslab.report.warnings import warnings_of
from poslab.report.write import write_report
from support.records import (
    GOOD,
    HIGH,
    LINES,
    STEEP,
    L,
    plan,
    read,
    rescaling_config,
    seal,
    write_rescaled,
    write_run,
)

pytestmark = pytest.mark.usefixtures("undrawn")

HOSTILE = "<script>alert(1)</script>|$x$ /home/me/secret/y"


def lines_of(results: Results, arm: int = 0) -> dict[str, dict[str, Any]]:
    """The row of the first seed, by rescaling."""
    return {line.rescale: dict(line.item.rows[0]) for line in results.rescaled[arm]}


def test_figures_are_those_of_the_rescaled_model(tmp_path):
    write_rescaled(tmp_path, "a", LINES)
    found = lines_of(gather("made_up", tmp_path, None))
    assert list(found) == ["none", "pi", "yarn"]
    yarn = found["yarn"]
    assert yarn["loss_1x"] == pytest.approx(1.73)
    assert yarn["sliding_8x"] == pytest.approx(1.57)
    assert yarn["bits_per_byte_1x"] == pytest.approx(1.73 / math.log(2) / 2)
    assert yarn["sliding_bits_per_byte_1x"] == pytest.approx(1.53 / math.log(2) / 2)
    assert yarn["early_token_curse_4x"] == pytest.approx(0.1)
    assert yarn["context_gain_8x"] == pytest.approx(-0.04)
    assert yarn["loss_change_8x"] == pytest.approx(1.77 / 1.73 - 1)
    # The price at L, and what is left of it at 8 L, both over the loss at L as trained.
    assert yarn["loss_change_from_trained_1x"] == pytest.approx(1.73 / 1.7 - 1)
    assert yarn["loss_change_from_trained_8x"] == pytest.approx(1.77 / 1.7 - 1)
    assert found["none"]["loss_change_from_trained_1x"] == 0
    assert found["none"]["loss_change_from_trained_8x"] == found["none"]["loss_change_8x"]


def test_what_is_usable_is_held_against_the_model_as_trained(tmp_path):
    write_rescaled(tmp_path, "a", LINES)
    found = lines_of(gather("made_up", tmp_path, None))
    trained, yarn, pi = found["none"], found["yarn"], found["pi"]
    assert (trained["usable_length"], trained["usable_length_1pct"]) == (2 * L, L)
    assert (yarn["usable_length"], yarn["usable_length_at_least"]) == (8 * L, True)
    assert (yarn["usable_length_1pct"], yarn["usable_length_1pct_at_least"]) == (0, False)
    # Flat to 8 L against its own loss at L, and not usable anywhere.
    assert (pi["usable_length"], pi["usable_length_multiple"], pi["usable_length_at_least"]) == (0, 0, False)
    assert (trained["failure_position"], trained["plateau"]) == (2 * L, pytest.approx(2.0))
    assert (yarn["failure_position"], yarn["failure_position_found"]) == (None, False)
    assert yarn["failure_position_1pct"] == L
    assert (pi["failure_position"], pi["plateau"]) == (L, pytest.approx(2.5))
    # Against its own plateau it never rises: it reaches far, at a price.
    assert (pi["rise_position"], pi["rise_position_found"]) == (None, False)
    assert trained["rise_position"] == trained["failure_position"]


def test_a_rise_for_good_is_not_a_hard_stretch_of_text():
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


def test_seeds_average_as_those_of_arms_do(tmp_path):
    for seed in (0, 1):
        write_rescaled(tmp_path, f"a{seed}", LINES, shift=0.1 * seed, seed=seed)
    results = gather("made_up", tmp_path, None)
    (one,) = results.rescaled
    item = one[2].item  # under YaRN
    prices = (1.73 / 1.7 - 1, 1.83 / 1.8 - 1)
    price = item.figures["loss_change_from_trained_1x"]
    assert (price.n, price.mean) == (2, pytest.approx(sum(prices) / 2))
    assert price.half_width == pytest.approx(12.706204736 * abs(prices[0] - prices[1]) / 2)
    assert item.figures["loss_8x"].half_width == pytest.approx(12.706204736 * 0.05)
    assert "No difference is tested" in findings(results)[-1]


def test_the_answer_says_which_rotation_helps_and_its_price(tmp_path):
    write_rescaled(tmp_path, "a", LINES)
    *_, said = sentences(gather("made_up", tmp_path, None))
    for part in ("YaRN s=8", "1.570 instead of 2.500 at 8 L", "1.530 instead of 1.500 at L"):
        assert part in said
    worse = tmp_path / "worse"
    write_rescaled(worse, "b", {"pi": (dict.fromkeys(HIGH, 3.0), 2.5)}, config=rescaling_config("pi"))
    *_, said = sentences(gather("made_up", worse, None))
    assert said.startswith("No other rotation at evaluation lowers")


def test_a_rotation_that_only_some_seeds_have_is_not_held_against_the_mean_of_all(tmp_path):
    """Of seed 0 alone it is worse, though below the mean of all seeds."""
    config = rescaling_config("pi", "drop", steps=50)
    for seed in range(3):
        lines = {"pi": (HIGH | {8.0: 3.9}, 2.5)}
        if seed == 0:
            lines["drop"] = ({1.0: 1.8, 2.0: 1.9, 4.0: 2.3, 8.0: 2.8}, 2.5)
        write_rescaled(tmp_path, f"rope-{seed}", lines, shift=0.6 * seed, seed=seed, config=config)
    *_, said = sentences(gather("made_up", tmp_path, None))
    assert said.startswith("No other rotation at evaluation lowers")


@pytest.mark.parametrize(
    ("rescale", "config", "shown"),
    [
        ("none", rescaling_config(), "as trained"),
        ("pi", rescaling_config("pi"), "interpolation s=8"),
        ("ntk", rescaling_config("ntk", factor=2.5), "NTK s=2.5"),
        ("yarn", rescaling_config("yarn", factor="auto"), "YaRN s=8"),
        ("drop", rescaling_config("drop", steps=50), "RoPE dropped, 50 steps of recalibration"),
        ("pi", {}, "interpolation"),
        ("pi{factor}", rescaling_config(), "pi{factor}"),
    ],
)
def test_rescalings_are_named_for_a_reader(rescale, config, shown):
    assert label(rescale, config) == shown


def test_a_record_without_rescalings_reports_as_ever(tmp_path):
    write_run(tmp_path / "runs", "old", config={"evaluate": {"longest": 8}})
    write_run(tmp_path / "runs", "new", pos="alibi", config=rescaling_config())
    report = write_report("made_up", tmp_path / "runs", tmp_path / "reports")
    assert not [path.name for path in report.directory.rglob("rescaled*")]
    assert 'id="rescaled"' not in report.page.read_text()
    assert "Rescaled" not in (report.directory / "report.md").read_text()
    # What is asked for beside the run's own figures keeps no arms from being compared, and out of labels.
    rows = read(report.directory / "differences.csv")
    assert {(row["arm"], row["reference"]) for row in rows} == {("rope", "alibi")}


@pytest.mark.parametrize("name", ["rescaled.csv", "rescaled_position.csv"])
def test_a_run_that_lacks_what_it_was_asked_for_is_unreadable(tmp_path, name):
    (write_rescaled(tmp_path, "a", LINES) / name).unlink()
    (run,) = load("made_up", tmp_path).runs
    assert (run.status, run.reason) == ("unreadable", f"{name} is missing")


def test_a_damaged_sheet_is_unreadable_and_says_why(tmp_path):
    directory = write_rescaled(tmp_path, "a", LINES)
    rows = read(directory / "rescaled.csv")
    with (directory / "rescaled.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*RESCALED.columns, *RESCALED.optional])
        writer.writeheader()
        writer.writerows([*rows, rows[0]])
    seal(directory)
    assert load("made_up", tmp_path).runs[0].reason == "rescaled.csv has segment 0 twice"
    (directory / "rescaled.csv").write_text("protocol,multiple\n")
    seal(directory)
    assert load("made_up", tmp_path).runs[0].reason == "rescaled.csv has no column rescale"


def test_a_rotation_without_losses_is_a_dash_and_an_infinite_one_is_said(tmp_path):
    lines = {"yarn": (GOOD | {8.0: math.inf}, 2.05)}
    write_rescaled(tmp_path, "a", lines, config=rescaling_config("pi", "yarn"))
    results = gather("made_up", tmp_path, None)
    table = {row[1].text: [cell.text for cell in row[2:]] for row in rescaled_table(results).rows}
    assert table["interpolation s=8"] == ["–"] * 8
    assert table["YaRN s=8"][3] == "–"
    assert lines_of(results)["yarn"]["usable_length"] == 4 * L
    assert any("a has losses that are not finite" in text for text in warnings_of(results))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Two arms of two seeds with rescalings, one of them unknown and hostile, and an arm without."""
    home = tmp_path_factory.mktemp("rescaled")
    runs = home / "runs"
    lines = LINES | {HOSTILE: (GOOD, 2.2)}
    for seed in (0, 1):
        write_rescaled(runs, f"a{seed}", lines, shift=0.01 * seed, seed=seed)
        config = rescaling_config(*LINES) | {"pos": {"base": 500}}
        write_rescaled(runs, f"b{seed}", LINES, 0.2 + 0.02 * seed, seed=seed, pos="rope 500", config=config)
        write_run(runs, f"n{seed}", pos="none", seed=seed, config=rescaling_config())
    plan(runs, ["a0", "a1", "b0", "b1", "n0", "n1"], "rope")
    write_report("made_up", runs, home / "reports")
    return home


def sheet(study: Path, name: str) -> list[dict[str, str]]:
    return read(study / "reports" / "made_up" / name)


def test_the_sheet_has_a_row_a_run_and_rotation_in_full(study):
    rows = sheet(study, "rescaled.csv")
    assert [row["run"] for row in rows if row["rescale"] == "none"] == ["a0", "a1", "b0", "b1"]
    assert len(rows) == 2 * 4 + 2 * 3
    own = {row["run"]: row for row in sheet(study, "summary.csv")}
    for row in rows:
        if row["rescale"] == "none":
            shared = row.keys() & own[row["run"]].keys()
            assert {"loss_8x", "usable_length", "plateau", "early_token_curse_2x"} <= shared
            assert {key: row[key] for key in shared} == {key: own[row["run"]][key] for key in shared}
    assert rows[0]["loss_8x"] == repr(float(rows[0]["loss_8x"]))


def test_rescalings_leave_the_other_sheets_as_they_are(study, tmp_path):
    """The same study measured as trained alone."""
    for seed in (0, 1):
        write_run(tmp_path, f"a{seed}", seed=seed, sliding=STEEP, shift=0.01 * seed)
        own = {"pos": "rope 500", "config": {"pos": {"base": 500}}}
        write_run(tmp_path, f"b{seed}", seed=seed, sliding=STEEP, shift=0.2 + 0.02 * seed, **own)
        write_run(tmp_path, f"n{seed}", pos="none", seed=seed)
    plan(tmp_path, ["a0", "a1", "b0", "b1", "n0", "n1"], "rope")
    without = write_report("made_up", tmp_path, tmp_path / "reports").directory
    for path in without.glob("*.csv"):
        if path.name in ("facts.csv", "settings.csv"):  # which say how the runs were evaluated
            continue
        assert path.read_bytes() == (study / "reports" / "made_up" / path.name).read_bytes(), path.name
