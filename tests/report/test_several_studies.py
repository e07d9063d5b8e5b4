"""Studies reported together: arms are named by study, and differences between studies at the top."""

from pathlib import Path
from typing import Any

import pytest

from poslab.analysis.results import gather
from poslab.record.reader import ReportError
from poslab.report.warnings import warnings_of
from poslab.report.write import write_report
from support.commands import read
from support.records import L, plan, write_run


def two(runs: Path, seeds: int = 1, **second: Any) -> None:
    """Write studies a (rope, alibi) and b (rope, fox), b with other fields in its manifests."""
    for seed in range(seeds):
        write_run(runs, f"rope-{seed}", seed=seed, study="a", shift=0.01 * seed)
        write_run(runs, f"alibi-{seed}", pos="alibi", seed=seed, study="a", shift=0.1 + 0.02 * seed)
        write_run(runs, f"rope-{seed}", seed=seed, study="b", shift=0.2 + 0.03 * seed, **second)
        write_run(runs, f"fox-{seed}", pos="fox", seed=seed, study="b", shift=-0.2 + 0.01 * seed, **second)


def test_arms_are_named_by_their_study_and_never_share_runs(tmp_path):
    two(tmp_path)
    plan(tmp_path, ["rope-0", "alibi-0"], study="a")
    results = gather("a,b", tmp_path, None)
    # In the order of the plan of a, and by label for b, which has none.
    assert [item.arm.label for item in results.arms] == ["a: rope", "a: alibi", "b: fox", "b: rope"]
    means = {item.arm.label: item.mean("loss_1x") for item in results.arms}
    assert means["a: rope"] == pytest.approx(2.2)
    assert means["b: rope"] == pytest.approx(2.4)
    assert gather("a", tmp_path, None).arms[0].arm.label == "rope"
    assert not list(warnings_of(results))


def test_the_same_run_counts_once_in_each_study(tmp_path):
    for study in ("a", "b"):
        for seed in (0, 1):
            write_run(tmp_path, f"rope-{seed}", seed=seed, study=study, shift=0.1 * seed)
        write_run(tmp_path, "rope-again", seed=1, study=study, finished="2025-01-01T00:00:00+00:00")
    results = gather("a,b", tmp_path, None)
    assert [len(item.rows) for item in results.arms] == [2, 2]
    assert [row["status"] for row in results.rows].count("superseded") == 2
    (primary,) = [item for item in results.comparisons if item.figure == results.primary]
    assert (primary.arm.label, primary.difference.n, primary.difference.mean) == ("b: rope", 2, 0)
    assert primary.reading == "no spread"


def test_the_reference_is_that_of_the_first_study_or_the_named_one(tmp_path):
    two(tmp_path)
    plan(tmp_path, ["rope-0", "alibi-0"], "alibi", study="a")
    plan(tmp_path, ["rope-0"], "rope", study="b")
    assert gather("a,b", tmp_path, None).reference.arm.label == "a: alibi"
    assert gather("b,a", tmp_path, None).reference.arm.label == "b: rope"
    assert gather("a,b", tmp_path, "rope").reference.arm.label == "a: rope"
    assert gather("a,b", tmp_path, "b: rope").reference.arm.label == "b: rope"
    assert gather("a,b", tmp_path, "fox").reference.arm.label == "b: fox"
    with pytest.raises(ReportError, match="is no arm of these studies; name one of: a: rope; a: alibi"):
        gather("a,b", tmp_path, "t5")


def test_labels_name_only_differences_within_a_study(tmp_path):
    trainer = {"max_steps": 100, "batch_size": 2}
    write_run(tmp_path, "rope", study="a", config={"trainer": trainer | {"learning_rate": 0.1}})
    write_run(tmp_path, "rope", study="b", config={"trainer": trainer | {"learning_rate": 0.2}})
    write_run(tmp_path, "long", study="b", config={"context_length": 2 * L})
    results = gather("a,b", tmp_path, None)
    # The rate follows from L.
    assert [item.arm.label for item in results.arms] == ["a: rope", "b: rope L=8", "b: rope L=16"]
    # The table of settings also has differences between the studies.
    assert [item.arm.differing["trainer.learning_rate"] for item in results.arms] == [0.1, 0.2, 0.002]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ({"code": "01d"}, "The runs were trained by different code"),
        ({"data": {"name": "stdlib", "fingerprint": "beef", "vocabulary": 256}}, "The data differ"),
        ({"config": {"trainer": {"max_steps": 50, "batch_size": 2}}}, "The budgets differ"),
        ({"config": {"context_length": 2 * L}}, "The training lengths differ (L = 8 and 16): "),
        ({"code_parts": "9"}, "The runs of rope / softmax were trained by different code"),
    ],
)
def test_differences_between_the_studies_are_named(tmp_path, second, expected):
    two(tmp_path, **second)
    assert any(text.startswith(expected) for text in warnings_of(gather("a,b", tmp_path, None)))


def test_two_files_of_one_name_are_two_arms(tmp_path):
    """A record has only the name of a file: both texts here are in files named corpus.txt."""
    for place in ("en", "de"):
        for seed in range(2):
            of_file = {"name": "text", "fingerprint": place, "vocabulary": 256}
            write_run(tmp_path, f"rope-{place}-{seed}", seed=seed, study="a", data=of_file)
    results = gather("a", tmp_path, None)
    assert [len(item.rows) for item in results.arms] == [2, 2]
    assert {run.status for run in results.runs} == {"done"}
    assert len({item.arm.label for item in results.arms}) == 2


def test_the_report_of_two_studies_is_next_to_theirs(tmp_path):
    two(tmp_path / "runs", seeds=2)
    write_run(tmp_path / "runs", "dead", pos="t5", study="b", status="failed", reason="out of memory")
    report = write_report("a,b", tmp_path / "runs", tmp_path / "reports")
    assert report.page == tmp_path / "reports" / "a+b" / "index.html"
    rows = read(report.directory / "summary.csv")
    of_a, of_b = ["alibi-0", "alibi-1", "rope-0", "rope-1"], ["dead", "fox-0", "fox-1", "rope-0", "rope-1"]
    assert [row["run"] for row in rows] == of_a + of_b
    assert all(row["arm"] == f"{row['study']}: {row['pos']}" for row in rows)
    assert len({row["loss_1x"] for row in rows if row["status"] == "done"}) == 8
    assert [row["study"] for row in read(report.directory / "arms.csv")] == ["a", "a", "b", "b", "b"]
    markdown = (report.directory / "report.md").read_text()
    assert markdown.startswith("# a+b\n")
    assert "b/dead (failed)" in markdown
    assert "python report.py study=a,b" in markdown
