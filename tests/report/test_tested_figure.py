"""The loss that a report tests; everything that it prints about a test is about that loss."""

import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from poslab.analysis.results import gather
from poslab.record.reader import ReportError
from poslab.record.study_list import enlist, read_study_list
from poslab.report.sections.answer import answer, sentences
from poslab.report.sections.contents import document
from poslab.report.sections.overview import arms_table, differences_table, protocols
from poslab.report.write import write_report
from support.commands import read
from support.records import L, plan, terminal_rows, words, write_protocols, write_run

LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0)


def opposed(runs: Path, seeds: int = 5, primary: str | None = None) -> None:
    """Write rope, best in non-overlapping windows of 8 L, alibi, best in sliding ones, and fox, the worst."""
    losses = {"rope": (3.0, 2.0), "alibi": (2.5, 2.5), "fox": (4.0, 4.0)}  # at 8 L: sliding, non-overlapping
    names = []
    for seed in range(seeds):
        for i, (pos, (sliding, plain)) in enumerate(losses.items()):
            names.append(f"{pos}-{seed}")
            noise = 0.01 * ((seed * (i + 2)) % 5)
            at = [{k: loss + noise if k == 8 else 2.0 + noise for k in LENGTHS} for loss in (sliding, plain)]
            write_protocols(runs, names[-1], *at, pos=pos, seed=seed)
    plan(runs, names, "rope", primary=primary)


@pytest.mark.parametrize(
    ("lengths", "tested"),
    [
        ((1.0, 2.0, 4.0, 8.0, 16.0), "sliding_8x"),
        ((0.5, 1.0, 2.0, 4.0), "sliding_4x"),
        ((1.0,), "sliding_1x"),
    ],
)
def test_without_8_L_it_is_the_longest_shorter_length_of_the_reference(tmp_path, lengths, tested):
    write_run(tmp_path, "rope", sliding=dict.fromkeys(lengths, 2.0))
    write_run(tmp_path, "alibi", pos="alibi")
    plan(tmp_path, ["rope", "alibi"], "rope")
    assert gather("made_up", tmp_path, None).primary == tested


def test_without_a_sliding_loss_at_L_nothing_is_tested_by_default(tmp_path):
    for seed in range(2):
        for pos in ("rope", "alibi"):
            plain = {1.0: 2.0 + seed / 50, 8.0: 2.5 + (pos == "rope") / 9 + seed / 30}
            write_protocols(tmp_path, f"{pos}-{seed}", {0.5: 2.0}, plain, pos=pos, seed=seed)
    results = gather("made_up", tmp_path, "rope")
    assert (results.primary, results.fixed_limit) == (None, None)
    assert next(sentences(results)) == "Nothing is compared: the reference, rope, has no sliding loss at L."
    assert "Nothing is tested." in differences_table(results).caption
    assert gather("made_up", tmp_path, "rope", "loss_8x").tested


@pytest.mark.parametrize(
    ("primary", "other", "words", "ranks"),
    [
        ("sliding_8x", "loss_8x", "sliding", {"alibi": (1, 1), "rope": (2, 2), "fox": (3, 3)}),
        ("loss_8x", "sliding_8x", "non-overlapping", {"rope": (1, 1), "alibi": (2, 2), "fox": (3, 3)}),
    ],
)
def test_everything_about_a_test_is_about_the_tested_figure(tmp_path, primary, other, words, ranks):
    """The study chooses the figure; the choice of a command, even L/2, takes precedence."""
    opposed(tmp_path / "runs", primary=primary)
    report = write_report("made_up", tmp_path / "runs", tmp_path / "reports")
    results = gather("made_up", tmp_path / "runs", None)
    assert {label: (rank.best, rank.worst) for label, rank in results.ranks.items()} == ranks
    tested = {(row["figure"], row["counterpart"]) for row in read(report.directory / "pairs.csv")}
    assert tested == {(primary, other)}
    rows = read(report.directory / "differences.csv")
    assert {row["figure"] for row in rows if row["primary"] == "true"} == {primary}
    # At L the verdict is about whole windows, whichever protocol is tested past it.
    assert {row["figure"] for row in rows if row["p"] or row["p_holm"]} == {primary, "loss_1x"}
    facts = {row["key"]: row["value"] for row in read(report.directory / "facts.csv")}
    assert facts["primary"] == primary
    assert facts["report_command"] == f"python report.py study=made_up reference=rope primary={primary}"
    for name in ("index.html", "report.md"):
        ranked = set(
            re.findall(r"Arms are ranked by the (\S+) loss at 8\sL; ", (report.directory / name).read_text())
        )
        assert ranked == {words}, name
    # The table of arms has the losses that rank them; the other table has the other protocol.
    for table, figure in ((arms_table(results), primary), (protocols(results).tables[0], other)):
        assert figure in {column.key for column in table.columns}
        assert {primary, other} - {figure} - {column.key for column in table.columns}
    terminal = {row["scheme"]: row["8 L"] for row in terminal_rows(document(results))}
    assert terminal["rope"].startswith(f"{results.reference.mean(primary):.3f}")
    half = gather("made_up", tmp_path / "runs", None, "sliding_0.5x")
    assert {item.figure for item in half.comparisons if item.p_holm is not None} == {
        "sliding_0.5x",
        "loss_1x",
    }


def test_the_terminal_shows_a_tested_length_past_8_L(tmp_path):
    lengths = {k: 2.0 + k / 100 for k in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)}
    for pos in ("rope", "alibi"):
        write_protocols(tmp_path, pos, lengths, lengths, pos=pos)
    row = terminal_rows(document(gather("made_up", tmp_path, "rope", "sliding_64x")))[0]
    assert row["64 L"].startswith("2.640")
    assert [title for title in row if title.endswith(" L")] == ["sliding loss at L", "4 L", "16 L", "64 L"]


@pytest.mark.parametrize("primary", ["sliding_16x", "slidng_8x", "a\nb"])
def test_a_figure_that_no_arm_has_is_refused_with_a_list_of_figures(tmp_path, primary):
    write_run(tmp_path, "rope", sliding={1.0: 2.0, 8.0: 2.0})
    with pytest.raises(ReportError) as error:
        gather("made_up", tmp_path, None, primary)
    assert "there are sliding_1x, sliding_8x, loss_1x, loss_8x" in str(error.value)
    assert "\n" not in str(error.value)
    plan(tmp_path, ["rope"], primary=primary)  # a figure of the study that no arm has yet
    assert gather("made_up", tmp_path, None).primary == "sliding_8x"


def tokenizers(runs: Path, seeds: int = 5, primary: str = "sliding_bits_per_byte_8x", **other: Any) -> Path:
    """Write rope on bytes, and on tokens of four bytes with a higher loss per token but a lower per byte."""
    names = []
    for seed in range(seeds):
        for vocabulary, entries, loss, size in (("bytes", 256, 1.0, 1), ("512", 512, 2.0 + seed / 100, 4)):
            names.append(f"{vocabulary}-{seed}")
            data = {"name": "book", "fingerprint": vocabulary, "vocabulary": entries, "documents": 7}
            data |= other if vocabulary == "512" else {}
            config = {"data": {"source": "text", "path": "book.txt", "vocabulary": vocabulary}}
            losses = dict.fromkeys(LENGTHS, loss + seed / 50) | {0.5: loss + seed / 50 + 0.1}
            write_protocols(runs, names[-1], losses, losses, size, seed=seed, data=data, config=config)
    plan(runs, names, "rope vocabulary=bytes", primary=primary)
    return runs


@pytest.mark.parametrize("primary", ["sliding_bits_per_byte_8x", "bits_per_byte_8x"])
def test_tokenizers_are_compared_in_bits_per_byte(primary, tmp_path):
    results = gather("made_up", tokenizers(tmp_path, primary=primary), None)
    assert results.primary == primary
    (tested,) = results.tested
    assert tested.reading == "lower"
    nats = [(2.0 + seed / 100 + seed / 50) / 4 - (1.0 + seed / 50) for seed in range(5)]
    assert tested.difference.mean == pytest.approx(sum(nats) / 5 / math.log(2))
    # Nats per token of the two do not compare.
    assert all("bits_per_byte" in item.figure for item in results.comparisons)
    assert {test.figure for test in results.claims if test.against} == {primary, "bits_per_byte_1x"}
    assert set(results.ranks) == {"rope vocabulary=bytes", "rope vocabulary=512"}
    made = document(results)
    assert "in bits per byte, the loss of rope vocabulary=512 is lower" in " ".join(made.summary.split())
    assert "bits_per_byte_by_length" in {chart.name for chart in made.charts}
    assert "not compared" not in words(results)
    (sentence, *_) = sentences(gather("made_up", tokenizers(tmp_path / "one", seeds=1), None))
    assert "the loss in bits per byte in sliding windows at 8 L lies between" in sentence


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"documents": 8}, "another text"),
        ({"name": "another book"}, "another text"),
        ({"primary": "sliding_8x"}, "another vocabulary"),  # which is in nats per token
    ],
)
def test_tokens_of_another_text_are_not_compared(other, reason, tmp_path):
    results = gather("made_up", tokenizers(tmp_path, **other), None)
    assert not results.tested
    assert reason in words(results)


def test_a_reference_without_the_figure_is_not_tested(tmp_path):
    opposed(tmp_path, 3)
    for seed in range(3):
        write_run(tmp_path, f"learned-{seed}", "learned", seed, sliding={1.0: 2.0 + seed / 9}, max_length=L)
    results = gather("made_up", tmp_path, "learned", "sliding_8x")
    assert results.leading == ["alibi"]
    assert "learned (not defined there)" in words(results)
    assert gather("made_up", tmp_path, "learned").primary == "sliding_1x"
    for run in (tmp_path / "made_up").glob("[af]*-*"):
        shutil.rmtree(run)  # rope and learned are not compared
    results = gather("made_up", tmp_path, "learned", "sliding_8x")
    sentence, at_length = sentences(results)
    assert sentence.endswith("in sliding windows at 8 L: the reference, learned, has no sliding loss at 8 L.")
    assert at_length.startswith("At L, ")
    assert "Tested" not in dict(answer(results).belief)


def test_a_study_list_keeps_its_figure_until_another_is_named(tmp_path):
    folder = tmp_path / "made_up"
    write_run(tmp_path, "rope")
    for primary, kept in ((None, None), ("loss_4x", "loss_4x"), (None, "loss_4x"), ("loss_8x", "loss_8x")):
        enlist(folder, ["rope"], "python train.py", primary=primary)
        assert read_study_list(folder).primary == kept
