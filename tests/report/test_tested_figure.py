"""Which loss a report tests, and that all that it says and writes of a test is of that loss."""

import math
from pathlib import Path
from typing import Any

import pytest

from poslab.analysis.facts import report_command
from poslab.analysis.results import Results, gather
from poslab.record.files import write_sealed
from poslab.record.reader import ReportError
from poslab.record.seal import read_sealed
from poslab.record.study_list import enlist, read_study_list
from poslab.report.sections.answer import answer, sentences
from poslab.report.sections.contents import document
from poslab.report.sections.overview import arms_table, differences_table, protocols
from poslab.report.warnings import warnings_of
from poslab.report.write import write_report
from support.records import L, plan, read, words, write_protocols, write_run

pytestmark = pytest.mark.usefixtures("undrawn")

GOLDEN = Path(__file__).parents[1] / "record" / "golden"
LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0)


def opposed(runs: Path, seeds: int = 5, primary: str | None = None) -> None:
    """rope wins in non-overlapping windows of 8 L, alibi in sliding ones; fox is last in both."""
    losses = {"rope": (3.0, 2.0), "alibi": (2.5, 2.5), "fox": (4.0, 4.0)}  # at 8 L: sliding, non-overlapping
    names = []
    for seed in range(seeds):
        for i, (pos, (sliding, plain)) in enumerate(losses.items()):
            names.append(f"{pos}-{seed}")
            noise = 0.01 * ((seed * (i + 2)) % 5)
            at = [{k: loss + noise if k == 8 else 2.0 + noise for k in LENGTHS} for loss in (sliding, plain)]
            write_protocols(runs, names[-1], *at, pos=pos, seed=seed)
    plan(runs, names, "rope", primary=primary)


def rank_of(results: Results) -> dict[str, tuple[int, int]]:
    return {label: (rank.best, rank.worst) for label, rank in results.ranks.items()}


@pytest.mark.parametrize(
    ("lengths", "tested"),
    [
        ((1.0, 2.0, 4.0, 8.0, 16.0), "sliding_8x"),
        ((0.5, 1.0, 2.0, 4.0), "sliding_4x"),
        ((1.0,), "sliding_1x"),
    ],
)
def test_without_8_L_it_is_the_longest_below_that_the_reference_has(tmp_path, lengths, tested):
    write_run(tmp_path, "rope", sliding=dict.fromkeys(lengths, 2.0))
    write_run(tmp_path, "alibi", pos="alibi")
    plan(tmp_path, ["rope", "alibi"], "rope")
    assert gather("made_up", tmp_path, None).primary == tested


def test_without_a_sliding_loss_at_L_nothing_is_tested_unless_asked_for(tmp_path):
    for seed in range(2):
        for pos in ("rope", "alibi"):
            plain = {1.0: 2.0 + seed / 50, 8.0: 2.5 + (pos == "rope") / 9 + seed / 30}
            write_protocols(tmp_path, f"{pos}-{seed}", {0.5: 2.0}, plain, pos=pos, seed=seed)
    results = gather("made_up", tmp_path, "rope")
    assert results.primary is None
    assert next(sentences(results)) == "Nothing is compared: the reference, rope, has no sliding loss at L."
    table = differences_table(results)
    assert "Nothing is tested." in table.caption
    assert gather("made_up", tmp_path, "rope", "loss_8x").tested
    assert results.fixed_limit is None


@pytest.mark.parametrize(
    ("primary", "words", "ranks"),
    [
        ("sliding_8x", "sliding", {"alibi": (1, 1), "rope": (2, 2), "fox": (3, 3)}),
        ("loss_8x", "non-overlapping", {"rope": (1, 1), "alibi": (2, 2), "fox": (3, 3)}),
    ],
)
def test_all_that_speaks_of_a_test_speaks_of_the_tested_figure(tmp_path, primary, words, ranks):
    other, other_words = {"sliding": ("loss_8x", "non-overlapping")}.get(words, ("sliding_8x", "sliding"))
    opposed(tmp_path / "runs", primary=primary)
    report = write_report("made_up", tmp_path / "runs", tmp_path / "reports")
    results = gather("made_up", tmp_path / "runs", None)
    assert rank_of(results) == ranks
    assert {row["figure"] for row in read(report.directory / "pairs.csv")} == {primary}
    assert {row["counterpart"] for row in read(report.directory / "pairs.csv")} == {other}
    rows = read(report.directory / "differences.csv")
    assert {row["figure"] for row in rows if row["primary"] == "true"} == {primary}
    # At L the verdict speaks of whole windows, whichever protocol is tested past it.
    assert {row["figure"] for row in rows if row["p"] or row["p_holm"]} == {primary, "loss_1x"}
    facts = {row["key"]: row["value"] for row in read(report.directory / "facts.csv")}
    assert facts["primary"] == primary
    assert f"primary={primary}" in facts["report_command"].split()
    for name in ("index.html", "report.md"):
        text = (report.directory / name).read_text()
        assert f"The rank is by the {words} loss at 8 L: " in text, name
        assert f"The rank is by the {other_words}" not in text, name
    # The losses of the arms are those that rank them; those of the other protocol are in the other table.
    for table, figure in ((arms_table(results), primary), (protocols(results).tables[0], other)):
        assert figure in {column.key for column in table.columns}
        assert {primary, other} - {figure} - {column.key for column in table.columns}
    terminal = {row["scheme"]: row["8 L"] for row in document(results).terminal}
    expected = results.reference.mean(primary)
    assert terminal["rope"].startswith(f"{expected:.3f}")


def test_the_terminal_shows_the_tested_length_where_that_is_farther_than_8_L(tmp_path):
    lengths = {k: 2.0 + k / 100 for k in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)}
    for pos in ("rope", "alibi"):
        write_protocols(tmp_path, pos, lengths, lengths, pos=pos)
    plan(tmp_path, ["rope", "alibi"], "rope", primary="sliding_64x")
    row = document(gather("made_up", tmp_path, None)).terminal[0]
    assert row["64 L"].startswith("2.640")
    assert [title for title in row if title.endswith(" L")] == ["sliding loss at L", "4 L", "16 L", "64 L"]


def test_a_command_s_figure_goes_before_the_study_s(tmp_path):
    opposed(tmp_path, 2, "loss_4x")
    assert gather("made_up", tmp_path, None).primary == "loss_4x"
    results = gather("made_up", tmp_path, None, "sliding_2x")
    assert results.primary == "sliding_2x"
    assert report_command(results) == "python report.py study=made_up reference=rope primary=sliding_2x"


@pytest.mark.parametrize(
    "primary", ["loss_3x", "sliding_16x", "slidng_8x", "bits_per_byte_16x", "8x", "a\nb"]
)
def test_a_figure_that_no_arm_has_is_refused_by_a_line_that_lists_what_there_is(tmp_path, primary):
    write_run(tmp_path, "rope", sliding={1.0: 2.0, 8.0: 2.0})
    with pytest.raises(ReportError) as error:
        gather("made_up", tmp_path, None, primary)
    assert "is a loss of no arm; there are sliding_1x, sliding_8x, loss_1x, loss_8x" in str(error.value)
    assert "\n" not in str(error.value)
    # The study's own choice is no reason to make no report: it says what is tested instead.
    plan(tmp_path, ["rope"], primary=primary)
    results = gather("made_up", tmp_path, None)
    assert results.primary == "sliding_8x"
    assert any("is a loss of no arm; sliding_8x is tested instead." in text for text in warnings_of(results))


def tokenizers(runs: Path, seeds: int = 5, primary: str = "sliding_bits_per_byte_8x", **other: Any) -> Path:
    """rope on bytes, and on tokens of four bytes with a higher loss a token and a lower one a byte."""
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
    in_bits = [item.figure for item in results.comparisons]
    assert all(
        "bits_per_byte" in figure for figure in in_bits
    )  # nats a token of the two mean different things
    assert {test.figure for test in results.claims if test.against} == {primary, "bits_per_byte_1x"}
    assert set(results.ranks) == {"rope vocabulary=bytes", "rope vocabulary=512"}
    made = write_report("made_up", tmp_path, tmp_path / "reports")
    assert "in bits per byte, the loss of rope vocabulary=512 is lower" in " ".join(
        made.document.summary.split()
    )
    page = (tmp_path / "reports" / "made_up" / "index.html").read_text()
    assert "Bits per byte by evaluation length" in page
    assert "not compared" not in page


@pytest.mark.parametrize("other", [{"documents": 8}, {"name": "another book"}])
def test_tokens_of_another_text_are_not_compared_in_bits_per_byte(other, tmp_path):
    results = gather("made_up", tokenizers(tmp_path, **other), None)
    assert not results.tested
    assert "another text" in words(results)


def test_tokenizers_are_not_compared_in_nats_a_token(tmp_path):
    results = gather("made_up", tokenizers(tmp_path, primary="sliding_8x"), None)
    assert not results.tested
    assert "another vocabulary" in words(results)


def test_losses_of_one_seed_have_their_unit_where_they_are_in_bits(tmp_path):
    (said, *_) = sentences(gather("made_up", tokenizers(tmp_path, seeds=1), None))
    assert "the loss in bits per byte in sliding windows at 8 L lies between" in said


def test_half_of_L_can_be_tested(tmp_path):
    opposed(tmp_path, 3)
    results = gather("made_up", tmp_path, None, "sliding_0.5x")
    tested = {item.figure for item in results.comparisons if item.p_holm is not None}
    assert tested == {"sliding_0.5x", "loss_1x"}


def test_a_reference_without_the_figure_is_tested_against_nothing(tmp_path):
    opposed(tmp_path, 3)
    for seed in range(3):
        write_run(tmp_path, f"learned-{seed}", "learned", seed, sliding={1.0: 2.0 + seed / 9}, max_length=L)
    results = gather("made_up", tmp_path, "learned", "sliding_8x")
    assert results.leading == ["alibi"]
    assert "learned (not defined there)" in words(results)
    assert gather("made_up", tmp_path, "learned").primary == "sliding_1x"


def test_two_arms_whose_reference_lacks_the_figure_are_not_compared_for_that_reason(tmp_path):
    for seed in range(3):
        write_run(tmp_path, f"learned-{seed}", "learned", seed, sliding={1.0: 2.0 + seed / 9}, max_length=L)
        write_run(tmp_path, f"rope-{seed}", "rope", seed, shift=seed / 9)
    results = gather("made_up", tmp_path, "learned", "sliding_8x")
    assert [*sentences(results)] == [
        "Nothing is compared: the reference, learned, has no sliding loss at 8 L."
    ]
    assert "Tested" not in dict(answer(results).belief)


def test_a_study_list_keeps_its_figure_until_another_is_named(tmp_path):
    folder = tmp_path / "made_up"
    write_run(tmp_path, "rope")
    for primary, kept in ((None, None), ("loss_4x", "loss_4x"), (None, "loss_4x"), ("loss_8x", "loss_8x")):
        enlist(folder, ["rope"], "python train.py", primary=primary)
        listed = read_study_list(folder)
        assert listed.primary == kept


def test_lists_from_before_there_was_a_choice_are_read_and_get_the_default(tmp_path):
    listed = read_study_list(GOLDEN / "format3")
    assert listed.primary is None
    assert gather("format3", GOLDEN, None).primary == "sliding_2x"
    write_run(tmp_path, "rope")
    plan(tmp_path, ["rope"])
    path = tmp_path / "made_up" / "study.json"
    write_sealed(path, {**read_sealed(path), "primary": 8})  # of a wrong type: as if it were not there
    assert gather("made_up", tmp_path, None).primary == "sliding_8x"
