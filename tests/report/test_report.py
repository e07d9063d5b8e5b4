"""The report's figures compared with hand-computed ones, from made-up records. Nothing trains."""

import math

import pytest

from poslab.analysis.facts import shown_configuration
from poslab.analysis.results import gather
from poslab.config.text import plain
from poslab.record import measures
from poslab.record.losses import LossSum, Validation
from poslab.record.reader import load
from poslab.record.schema import EXTRAPOLATION
from poslab.report.formatting import interval, number, quantity, share, web_link
from poslab.report.warnings import warnings_of
from support.records import BATCH, FLAT, STEEP, L, length_rows, plan, row_of, seal, write_run


def test_losses_are_sums_over_segments_and_bits_count_bytes(tmp_path):
    write_run(tmp_path, "a", sliding=STEEP)
    row = row_of(gather("made_up", tmp_path, None), "a")
    assert row["loss_1x"] == pytest.approx(1.5 + 0.2)
    assert row["sliding_8x"] == pytest.approx(2.5)
    assert row["bits_per_byte_1x"] == pytest.approx(1.7 / math.log(2) / 2)
    # On the targets that both protocols score, and not between the means over all.
    assert row["early_token_curse_4x"] == pytest.approx(0.1)
    assert row["context_gain_8x"] == pytest.approx(-1.0)
    assert row["loss_change_8x"] == pytest.approx(2.7 / 1.7 - 1)


def test_a_segment_without_targets_leaves_bits_per_byte_defined():
    """As for masked text, where a segment may mask no token; missing bytes leave it undefined."""
    parts = [LossSum(1.4, 2, 2), LossSum(0.0, 0, 0)]
    assert measures.mean_bits(parts) == pytest.approx(0.7 / math.log(2))
    assert measures.mean_bits([*parts, LossSum(1.0, 1, None)]) is None


def test_position_bins_share_an_edge_with_L(tmp_path):
    write_run(tmp_path, "a")
    (run,) = load("made_up", tmp_path).runs
    bins = measures.position_bins(run)
    assert [item.first for item in bins][:3] == [0, 1, 2]
    assert [item.last for item in bins][:-1] == [item.first - 1 for item in bins][1:]
    assert bins[-1].last == 8 * L - 1
    assert {L / 2 - 1, L - 1, 2 * L - 1} <= {item.last for item in bins}


def points(*losses: float) -> list[Validation]:
    return [Validation(i, 100 * 2**i, float(i), loss * 5, 5, None) for i, loss in enumerate(losses)]


def test_a_target_is_reached_after_three_evaluations_and_between_two():
    # The dip at the second evaluation does not last; that at the fourth does.
    curve = points(3.0, 1.9, 2.5, 1.5, 1.4, 1.3)
    found = measures.crossing(curve, 2.0)
    assert (found.tokens, found.steps) == pytest.approx((400 * 2**0.5, 1 + 2**0.5))
    assert measures.crossing(curve[:5], 1.45) is None  # two in a row are not three
    start = points(1.0, 1.0, 1.0)
    assert measures.crossing(start, 2.0).tokens == 100
    linear = measures.crossing([Validation(0, 0, 0.0, 15.0, 5, None), *start], 2.0)
    assert linear.tokens == pytest.approx(50)
    assert measures.crossing(points(3.0, math.nan, 1.0, 1.0), 2.0) is None


def test_the_target_is_the_reference_median_and_runs_that_miss_it_are_counted(tmp_path):
    for seed, shift in enumerate((0.0, 0.2, 0.1)):
        write_run(tmp_path, f"r{seed}", seed=seed, shift=shift)
        write_run(tmp_path, f"a{seed}", pos="alibi", seed=seed, shift=(-0.2, 5.0, -0.2)[seed])
    write_run(tmp_path, "n0", pos="none", seed=0, shift=-0.5)
    for seed, end in ((1, 30), (2, 80)):  # before the target and after it
        curve = [3 - i / 100 if i < end else math.nan for i in range(101)]
        lost = {"status": "diverged", "reason": "the loss is not finite", "curve": curve}
        write_run(tmp_path, f"n{seed}", pos="none", seed=seed, **lost)
    results = gather("made_up", tmp_path, "rope")
    assert [target.loss for target in results.targets] == pytest.approx([2.6, 2.35, 2.2])
    by_label = {item.arm.label: item for item in results.arms}
    assert by_label["alibi"].reached[""] == (2, 3)
    assert by_label["none"].reached[""] == (2, 3)  # a target reached before the run diverged counts
    # No mean if a run did not reach the target.
    assert "tokens_to_target" not in by_label["alibi"].figures
    assert "tokens_to_target" not in by_label["none"].figures
    row = row_of(results, "a1")
    assert (row["tokens_to_target"], row["reached"]) == (None, False)
    assert row_of(results, "r0")["tokens_to_target"] == pytest.approx(65 * BATCH * L)
    assert row_of(results, "r0")["steps_to_target"] == pytest.approx(65)
    assert row_of(results, "r0")["flops_to_target"] == pytest.approx(6e6 * 0.65)


TASK = {"data": {"source": "copy"}}


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        (  # whole names, since both end alike
            [{"a": {"size": i // 2}, "b": {"size": i % 2}} for i in range(3)],
            ["rope a.size=0 b.size=0", "rope a.size=0 b.size=1", "rope a.size=1 b.size=0"],
        ),
        (  # in natural order, as without a plan
            [{"pos": {"base": base}} for base in (10000, 500, 2000)],
            ["rope base=500", "rope base=2000", "rope base=10000"],
        ),
        ([{}, {"callbacks": {"mine": {"_target_": "my.callbacks.Mine", "n": 2}}}], ["rope", "rope Mine"]),
        # A setting that records omit is named if another run has it.
        ([{}, {"objective": {"kind": "masked", "share": 0.3}}], ["rope causal", "rope masked"]),
        (
            [TASK, {"data": {"source": "copy", "windows": "packed"}}],
            ["rope windows=joined", "rope windows=packed"],
        ),
        ([TASK, {"data": {"source": "copy", "held_out": 0.2}}], ["rope held_out=0.1", "rope held_out=0.2"]),
        ([{}, {"evaluate": {"documents": "joined"}}], ["rope documents=joined", "rope documents=single"]),
    ],
)
def test_labels_name_differing_settings_briefly(configs, expected, tmp_path):
    for i, config in enumerate(configs):
        write_run(tmp_path, f"{i}", config=config)
    assert [item.arm.label for item in gather("made_up", tmp_path, None).arms] == expected


def test_superseded_failed_and_damaged_runs_are_listed_and_do_not_count(tmp_path):
    write_run(tmp_path, "new", shift=0.5)
    write_run(tmp_path, "old", code="01d", finished="2025-01-01T00:00:00+00:00")
    write_run(tmp_path, "dead", pos="t5", status="failed", reason="no file /home/somebody/texts/corpus.txt")
    damaged = write_run(tmp_path, "damaged", pos="alibi")
    (damaged / "extrapolation.csv").write_text("protocol,multiple\n")
    seal(damaged)
    (write_run(tmp_path, "torn") / "manifest.json").write_text("{")
    (tmp_path / "made_up" / "notes").mkdir()
    plan(tmp_path, ["new", "never", "../elsewhere"])
    results = gather("made_up", tmp_path, None)
    reasons = {str(row["run"]): (row["status"], row["reason"]) for row in results.rows}
    assert {name: status for name, (status, _) in reasons.items()} == {
        "new": "done",
        "old": "superseded",
        "dead": "failed",
        "damaged": "unreadable",
        "torn": "unreadable",
        "never": "not started",
    }
    assert reasons["old"][1] == "new is the same configuration and seed, finished later"
    assert reasons["dead"][1] == "no file corpus.txt"
    assert reasons["damaged"][1] == "extrapolation.csv has no column length"
    rope = next(item for item in results.arms if item.arm.label == "rope")
    assert rope.mean("loss_1x") == pytest.approx(2.7)
    assert row_of(results, "old").get("loss_1x") is None
    assert any("5 of 6 runs do not count" in text for text in warnings_of(results))


def test_the_shown_configuration_has_no_folder_of_the_machine(tmp_path):
    write_run(tmp_path, "a", config={"callbacks": [{"path": "/home/somebody/mine.py"}]})
    assert shown_configuration(gather("made_up", tmp_path, None))["callbacks"] == [{"path": "mine.py"}]


def test_losses_that_are_not_finite_are_left_out(tmp_path):
    write_run(tmp_path, "a", sliding=FLAT | {8.0: math.inf})
    results = gather("made_up", tmp_path, None)
    row = row_of(results, "a")
    assert row["loss_8x"] is None
    assert row["usable_length"] == 4 * L
    assert any("losses that are not finite" in text for text in warnings_of(results))


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (number(-1e-12), "0.000000"),
        (interval(-1e-12, 0.0), "0.000000"),
        (interval(64.0, 0.0), "64.00"),  # equal seeds
        (interval(1.5, math.nan), "1.500"),
        (share(1.0, 0.0), "100.0"),
        (interval(2.0, 0.00042), "2.0000 ± 0.0004"),
        (interval(2.078662, 0.000005), "2.0787 ± 0.0001"),  # two seeds that agree by chance
        (interval(0.000714, 0.00002), "0.000714 ± 0.000020"),
        (interval(1e4, 1e-7), "10000.0000 ± 0.0001"),
        (interval(-1e-6, 30.0), "0.00 ± 30.00"),
        (quantity(999_900), "1 M"),
        (
            plain("read /home/me/secret/a.txt\nand and/or http://host/a/b"),
            "read a.txt and and/or http://host/a/b",
        ),
        (web_link("https://wandb.ai/x/y"), "https://wandb.ai/x/y"),
        (web_link("javascript:alert(1)"), None),
        (web_link("https:///nowhere"), None),
        (web_link('https://host/"><script>'), "https://host/%22%3E%3Cscript%3E"),
    ],
)
def test_formatting(shown, expected):
    assert shown == expected


@pytest.mark.parametrize(
    ("config", "other"),
    [
        ({}, {"evaluate": {"segments": 3}}),
        ({}, {"context_length": 2 * L}),
        ({"objective": {"kind": "masked", "share": 0.15}}, {"objective": {"kind": "masked", "share": 0.3}}),
    ],
)
def test_arms_scored_on_other_tokens_are_not_compared(tmp_path, config, other):
    for seed in range(2):
        write_run(tmp_path, f"a{seed}", seed=seed, shift=seed / 50, config=config)
        write_run(tmp_path, f"b{seed}", pos="alibi", seed=seed, shift=seed / 40 - 0.2, config=other)
    results = gather("made_up", tmp_path, "rope")
    assert not results.comparisons
    assert row_of(results, "b0").get("tokens_to_target") is None


def test_a_target_that_no_run_could_confirm_is_omitted(tmp_path):
    """With eleven evaluations, two follow after 75 % of the budget and one after 90 %."""
    trainer = {"max_steps": 10, "batch_size": BATCH}
    write_run(tmp_path, "a", curve=[3 - i / 10 for i in range(11)], config={"trainer": trainer})
    results = gather("made_up", tmp_path, None)
    assert [target.fraction for target in results.targets] == [0.5, 0.75]
    assert row_of(results, "a")["reached"] is True


@pytest.mark.parametrize("rows", [length_rows(FLAT, L)[:-1], length_rows(FLAT, L)])
def test_arms_scored_on_other_targets_are_warned_of(rows, tmp_path):
    write_run(tmp_path, "rope")
    write_run(tmp_path, "t5", "t5", tables={EXTRAPOLATION: rows})
    warned = any(
        "scored target tokens differ" in text for text in warnings_of(gather("made_up", tmp_path, None))
    )
    assert warned == (rows != length_rows(FLAT, L))


def test_a_report_warns_that_losses_of_two_objectives_do_not_compare(tmp_path):
    write_run(tmp_path, "rope")
    write_run(tmp_path, "masked", pos="alibi", config={"objective": {"kind": "masked", "share": 0.15}})
    warnings = list(warnings_of(gather("made_up", tmp_path, "rope causal")))
    assert any("rope causal: alibi masked. Losses of two objectives are" in text for text in warnings)


def test_a_report_warns_of_distances_that_training_did_not_reach(tmp_path):
    """Only if it has losses there; a run measured up to L has none."""
    for name, sliding in (("t5", {1.0: 2.0, 2.0: 2.5}), ("t5 to L", {1.0: 2.0})):
        write_run(tmp_path, name, pos=name, untrained_from=L, sliding=sliding)
    (warning,) = (text for text in warnings_of(gather("made_up", tmp_path, None)) if "no parameter" in text)
    assert warning.startswith(f"t5: windows of {L} tokens")
