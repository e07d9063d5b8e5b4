"""Times to a target in a report: under which schedule, and how certain near the end of the budget."""

from pathlib import Path

import pytest

from poslab.analysis.results import Results, gather
from poslab.record.facts import SHARED_STEPS
from poslab.report.sections.answer import answer
from poslab.report.sections.contents import document
from poslab.report.sections.convergence import target_charts, validation_chart
from support.records import BATCH, STEPS, write_run


def falling(runs: Path, shifts: dict[str, list[float]], **trainer: object) -> Results:
    """Write arms with a loss that falls by 0.01 per evaluation from 3 plus a shift by seed."""
    settings = {"max_steps": STEPS, "batch_size": BATCH, "learning_rate": 0.002, **trainer}
    for pos, values in shifts.items():
        for seed, shift in enumerate(values):
            write_run(runs, f"{pos}-{seed}", pos, seed, shift=shift, config={"trainer": settings})
    return gather("made_up", runs, "rope")


def test_a_study_without_longer_lengths_begins_with_the_fastest_arm(tmp_path):
    for seed in range(5):
        for pos, gain in (("rope", 0.0), ("t5", 0.4)):
            curve = [3 - i / 100 - gain * (i > 5) + 0.001 * seed for i in range(101)]
            sliding = {1.0: 2.0 - gain + 0.001 * seed}
            name = "t5 (mine)" if pos == "t5" else pos  # brackets in a label stay
            write_run(tmp_path, f"{pos}-{seed}", name, seed, sliding=sliding, curve=curve)
    results = gather("made_up", tmp_path, "rope")
    first = answer(results)
    assert first.sentences[0].endswith(" at 75 % of its budget is reached sooner by t5 (mine).")
    assert "at the end of the window" in first.sentences[1]
    assert first.chart.name == "validation_loss"
    assert "Tokens to target" in [column.title for column in first.table.columns]
    names = [chart.name for chart in document(results).charts]
    assert len(names) == len(set(names))
    assert {"validation_loss", "sliding_loss_by_length"} <= set(names)


@pytest.mark.parametrize("schedule", ["cosine", "wsd"])
def test_only_a_cosine_is_said_to_shape_the_time(tmp_path, schedule):
    (chart,) = target_charts(falling(tmp_path, {"rope": [0.0, 0.01]}, schedule=schedule))
    named = "use trainer.schedule=wsd" in chart.caption
    assert named == (schedule == "cosine")


def test_validations_of_a_shorter_run_are_named(tmp_path):
    note = f"{SHARED_STEPS} 8 are those of rope-0"
    for name, seed, notes in (("rope-0", 0, []), ("rope-1", 1, []), ("longer", 2, [note])):
        write_run(tmp_path, name, "rope", seed, notes=notes)
    named = validation_chart(gather("made_up", tmp_path, "rope")).caption
    assert "1 run begins with the steps and validations of a shorter run" in named


def test_a_run_that_misses_a_target_has_its_mark_past_the_end(tmp_path):
    (chart,) = target_charts(falling(tmp_path, {"rope": [0.0, 0.01], "t5": [0.9, 0.9]}))
    marks = {track.label: [x for _, x in track.marks] for track in chart.tracks}
    assert None not in marks["rope"]
    assert None in marks["t5"]
    for row in chart.rows:
        assert row["reached"] == (row["tokens_to_target"] is not None)
        assert row["tokens_to_target"] in marks[row["arm"]]
