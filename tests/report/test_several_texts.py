"""A study on several texts is compared text by text, and over texts only agreement is counted."""

import re
from pathlib import Path
from typing import Any

import pytest

from poslab.analysis.results import Results, gather
from poslab.analysis.texts import agreements
from poslab.paper.table import paper_table
from poslab.paper.write import write_paper
from poslab.record.reader import ReportError
from poslab.report.formatting import number
from poslab.report.held_out import held_out
from poslab.report.sections.answer import sentences
from poslab.report.sections.contents import document
from poslab.report.sections.texts import names as names_of
from poslab.report.warnings import remarks_on, warnings_of
from poslab.report.write import write
from support.commands import read
from support.records import BATCH, STEPS, L, terminal_rows, write_run

# The loss at 8 L by text and arm; the level of a text does not depend on the arm.
LOSSES = {
    "code": {"rope": 1.0, "t5": 0.9, "alibi": 1.2, "none": 1.3},
    "docs": {"rope": 2.0, "t5": 1.8, "alibi": 1.9, "none": 2.2},
    "sotu": {"rope": 3.0, "t5": 2.7, "alibi": 2.8, "none": 3.1},
}


def of_text(text: str, **config: Any) -> dict[str, Any]:
    """Return the fields about its text in the record of a run."""
    data = {"source": "package", "name": text, "vocabulary": "bytes"}
    facts = {"name": f"The {text}", "fingerprint": text, "vocabulary": 256}
    return {"data": facts, "config": {"data": data, **config}}


def study(
    runs: Path, losses: dict[str, dict[str, float]] = LOSSES, seeds: int = 5, primary: str | None = None
) -> Results:
    for text, by_arm in losses.items():
        for place, (pos, loss) in enumerate(by_arm.items()):
            for seed in range(seeds):
                by = 0.01 * seed + 0.004 * ((3 * seed + 2 * place * seed * seed) % 7)
                sliding = {0.5: loss + by + 0.1, 1.0: loss + by, 8.0: loss + by}
                write_run(runs, f"{text}-{pos}-{seed}", pos, seed, sliding=sliding, **of_text(text))
    return gather("made_up", runs, "rope", primary)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Three texts, four arms and five seeds."""
    return study(tmp_path_factory.mktemp("texts"))


def test_with_several_texts_held_out_text_is_named(tmp_path):
    for text in ("code", "sotu"):
        write_run(tmp_path, text, **of_text(text, evaluate={"segments": 64}))
    finished = gather("made_up", tmp_path, "rope").finished
    assert [line.split(": ")[0] for line in held_out(finished)] == ["The code", "The sotu"]
    assert ": " not in held_out(finished[:1])[0]


def test_differences_are_paired_within_a_text_and_counted_over_texts(results):
    assert [text.text for text in results.texts] == ["The code", "The docs", "The sotu"]
    assert {text.reference.arm.label for text in results.texts} == {"rope"}
    found = {item.arm: item for item in agreements(results.texts, "sliding_8x")}
    sides = "lower", "higher"
    assert {arm: (item.lower, *map(item.separated, sides)) for arm, item in found.items()} == {
        "t5": (3, 3, 0),
        "alibi": (2, 2, 1),
        "none": (0, 0, 3),
    }
    tested, order, *_, last = sentences(results)
    assert "not a sample" in last
    assert re.search(r"lower on 3 of 3 texts \(3 separated\) for t5 \(−", tested)
    assert re.search(
        r"lower on 2 of 3 texts \(2 separated\) and higher on 1 of 3 texts \(1 separated\) for alibi \(",
        tested,
    )
    assert re.search(r"higher on 3 of 3 texts \(3 separated\) for the arm none \(", tested)
    assert "alibi changes places with rope" in order


@pytest.mark.parametrize("smallest", [("rope", "t5"), ("rope",)])
def test_arms_of_another_size_are_not_compared_with_the_reference(smallest, tmp_path):
    """Larger arms of t5 are below the smallest rope but above the rope of their size."""
    for text in ("sotu", "code"):
        for width, size in ((16, 1000), (32, 2000), (64, 4000)):
            for place, pos in enumerate(smallest if width == 16 else ("rope", "t5")):
                for seed in range(3):
                    model = {"layers": 2, "width": width, "heads": 2}
                    shift = 0.1 * place - 0.01 * width + 0.003 * seed * (place + seed)
                    facts = {"shift": shift, "parameters": size, "flops": 6e3 * size}
                    name = f"{text}-{pos}-{width}-{seed}"
                    write_run(tmp_path, name, pos, seed, **facts, **of_text(text, model=model))
    results = gather("made_up", tmp_path, "rope width 16")
    beside = {f"{pos} width 16" for pos in smallest} - {"rope width 16"}
    assert {item.arm for item in agreements(results.texts, "sliding_8x")} == beside
    if beside:
        apart = next(iter(sentences(results))).partition("not compared: ")[2]
        assert "(another size or budget)" in apart
        assert "rope width 32" in apart
        assert "t5 width 32" in apart
    # The first screen shows other figures: each text has its gaps in both losses.
    drawn = {chart.name for chart in document(results).charts if chart.name.startswith("gap_")}
    assert drawn == {f"gap_{loss}_{text}" for loss in ("loss_1x", "sliding_8x") for text in ("sotu", "code")}


def test_each_text_has_target_losses_of_its_own(results):
    for text in results.texts:
        (remark,) = [remark for remark in remarks_on(results) if remark.startswith(f"{text.text}: ")]
        assert all(number(target.loss) in remark for target in text.targets)


@pytest.mark.parametrize("tuned", [False, True])
def test_files_of_users_are_texts_and_an_arm_may_have_a_tuned_rate_on_each(tuned, tmp_path):
    """Their content is part of an arm, but not of the settings that it shares over texts."""
    parts = [("tuning", 9), ("comparison", 0), ("comparison", 1)] if tuned else [("comparison", 0)]
    for text, rates in {"poems": (0.001, 0.002), "letters.jsonl": (0.002, 0.004)}.items():
        for part, seed in parts:
            for pos, rate in zip(("rope", "t5"), rates, strict=True):
                trainer = {"max_steps": STEPS, "batch_size": BATCH, "learning_rate": rate if tuned else 0.002}
                facts = of_text(text, trainer=trainer, part=part)
                facts["config"]["data"] = {"source": "text", "path": text, "vocabulary": 300}
                write_run(tmp_path, f"{text}-{pos}-{seed}", pos, seed, **facts)
    results = gather("made_up", tmp_path, "rope")
    assert [[item.arm.label for item in text.arms] for text in results.texts] == [["rope", "t5"]] * 2
    assert [*names_of(results)] == ["letters_jsonl", "poems"]  # of files and columns


def test_an_arm_on_one_text_only_does_not_change_the_comparison_of_others(tmp_path):
    """It changes the labels on its text, as RoPE at another length does."""
    study(tmp_path)
    for seed in range(5):
        facts = of_text("code", context_length=2 * L)
        write_run(tmp_path, f"longer-{seed}", seed=seed, sliding={1.0: 1.0}, **facts)
    results = gather("made_up", tmp_path, f"rope L={L}")
    assert [text.reference.arm.label for text in results.texts] == [f"rope L={L}"] * 3
    found = {item.arm: item for item in agreements(results.texts, "sliding_8x")}
    assert {arm: len(item.means) for arm, item in found.items()} == {
        f"{pos} L={L}": 3 for pos in ("t5", "alibi", "none")
    }


def test_uncompared_arms_are_named_and_in_no_order(tmp_path):
    """Losses of another vocabulary do not compare; with two seeds on one text all is exploratory."""
    for text, entries, seeds in (("sotu", 5.0, 5), ("code", 1.1, 2)):
        for pos, loss in {"rope": 2.0, "t5": 1.9, "alibi": entries}.items():
            for seed in range(seeds):
                facts = of_text(text)
                vocabulary = 4096 if pos == "alibi" else 256
                facts["config"]["data"]["vocabulary"] = facts["data"]["vocabulary"] = vocabulary
                facts["data"]["fingerprint"] += f" {vocabulary}"
                sliding = {1.0: loss + 0.01 * seed, 8.0: loss + 0.013 * seed}
                write_run(tmp_path, f"{text}-{pos}-{seed}", pos, seed, sliding=sliding, **facts)
    tested, *rest = sentences(gather("made_up", tmp_path, "rope vocabulary=256"))
    assert tested.startswith("2 to 5 seeds, so exploratory: ")
    assert "not compared: alibi vocabulary=4096 (another vocabulary)" in tested
    (order,) = (said for said in rest if said.startswith("Both texts give the same order of means"))
    assert "of the sliding loss at 8 L and of the non-overlapping loss at L" in order
    three = study(tmp_path / "b", {**LOSSES, "docs": {"rope": 2, "fox": 1}})
    assert not any("All 3 texts" in sentence for sentence in sentences(three))  # the third shares no pair


def test_a_terminal_counts_seeds_and_colours_the_arms_of_each_text(tmp_path):
    study(tmp_path, {"code": {"rope": 1.0, "alibi": 1.2}}, seeds=1)
    made = document(study(tmp_path, {"docs": LOSSES["docs"]}, seeds=2))
    rows = [(row["scheme"].split(), row["seeds"]) for row in terminal_rows(made)]
    assert {(text, seeds) for (_, text), seeds in rows} == {("code", "1"), ("docs", "2")}
    assert all(scheme.arm is not None for scheme, *_ in made.terminal.rows)


def test_an_arm_with_a_preposition_in_its_name_stays_whole(tmp_path):
    of_two = {"code": {"rope": 1.0, "bias with slopes": 1.2}, "docs": {"rope": 2.0, "bias with slopes": 1.8}}
    sentence = " ".join(sentences(study(tmp_path, of_two, seeds=2)))
    assert "Between texts bias with slopes changes places with rope in the order" in sentence


def test_a_task_is_not_a_second_text(tmp_path):
    study(tmp_path, {"code": LOSSES["code"]})
    for seed in range(2):
        config = {"data": {"source": "none"}, "objective": {"kind": "copy", "longest": 6}}
        write_run(tmp_path, f"copy-{seed}", seed=seed, config=config, data={"name": "no text"})
    results = gather("made_up", tmp_path, "rope")
    assert results.texts == ()
    (warning,) = [text for text in warnings_of(results) if "tasks" in text]
    assert all(words in warning for words in ("copy", "code", "study=NAME"))
    assert not any("fingerprint" in text or "None" in text for text in warnings_of(results))


def test_a_figure_in_bits_is_named_so(tmp_path):
    sentence = sentences(study(tmp_path, primary="sliding_bits_per_byte_8x"))
    tested = next(line for line in sentence if "at 8 L" in line)
    assert "bits per byte)" in tested
    assert "nats" not in tested


def test_a_report_compares_no_losses_of_different_texts(results, tmp_path):
    made = document(results)
    for shown in (made.sections, made.charts):
        assert len({one.name for one in shown}) == len(shown)
    for section in made.sections:
        for table in section.tables:
            assert {*table.sources} <= {f"{name}.csv" for name in made.sheets}, table.title
            arms = [row["arm"] for row in table.records if "arm" in row]
            assert table.title == "Runs" or all(label in LOSSES["code"] for label in arms)
            assert "claims.csv" not in table.caption  # each text has its own, which captions name
    assert not any("claims.csv" in sentence for chapter in made.chapters for sentence in chapter.findings)
    folder = write(results, tmp_path).directory
    assert "is taken by itself" in (folder / "index.html").read_text()
    rows = {(row["figure"], row["arm"]): row for row in read(folder / "texts.csv")}
    assert rows["sliding_8x", "t5"]["lower"] == "3"
    assert float(rows["sliding_8x", "t5"]["code_mean"]) == pytest.approx(-0.1, abs=0.02)
    assert {row["arm"] for row in read(folder / "differences_docs.csv")} == {"t5", "alibi", "none"}


def test_an_arm_without_the_reference_on_its_text_is_named(tmp_path):
    losses = {**LOSSES, "more": {"alibi": 2.0, "t5": 2.1}}
    results = study(tmp_path, losses)
    assert len(results.texts) == 3
    (warning,) = [text for text in warnings_of(results) if "no other arm finished on the same text" in text]
    assert "more" in warning


def test_a_reference_applies_to_every_text_and_must_be_unique_on_each(tmp_path):
    assert study(tmp_path / "a", seeds=2).reference_warning is None
    assert gather("made_up", tmp_path / "a", "t5").texts[2].reference.arm.label == "t5"
    write_run(tmp_path / "a", "wide", "rope", **of_text("sotu", model={"width": 32}))
    with pytest.raises(ReportError, match="fits 4 arms"):
        gather("made_up", tmp_path / "a", "rope")


def test_a_paper_has_the_arms_text_by_text(results, tmp_path, monkeypatch):
    monkeypatch.setattr("poslab.paper.write.draw", lambda charts: {})  # which takes seconds
    table = paper_table(results, ["sliding_8x", "difference"])
    assert [heading for heading, _ in table.blocks] == ["The code", "The docs", "The sotu"]
    for (_, rows), losses in zip(table.blocks, LOSSES.values(), strict=True):
        assert {row[0] for row in rows} == set(losses)
        assert [row[0] for row in rows if "bfseries" in row[1]] == ["t5"]
    methods = (write_paper(results, tmp_path) / "methods.tex").read_text()
    assert methods.count("alibi") == 1
    assert "data." not in methods


def test_arms_with_the_same_losses_are_equal_and_in_no_order(tmp_path):
    for text in LOSSES:
        for pos in ("rope", "t5"):
            for seed in range(2):
                write_run(tmp_path, f"{text}-{pos}-{seed}", pos, seed, shift=seed / 9, **of_text(text))
    sentence = " ".join(sentences(gather("made_up", tmp_path, "rope")))
    assert "against rope, is equal for t5 (0.0 nats)." in sentence
    assert "order the means" not in sentence
