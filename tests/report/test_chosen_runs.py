"""A report on chosen runs has only these, and no others of their studies."""

import shlex
from pathlib import Path

import pytest

from poslab.commands.report import main
from support.commands import read
from support.records import plan, write_run


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """The folder `runs` with studies a and b; the working directory is its parent."""
    runs = tmp_path / "runs"
    for study in ("a", "b"):
        for seed in (0, 1):
            write_run(runs, f"rope-{seed}", seed=seed, study=study, shift=0.01 * seed)
            write_run(runs, f"alibi-{seed}", pos="alibi", seed=seed, study=study, shift=0.1 + 0.02 * seed)
    plan(runs, ["rope-0", "rope-1", "alibi-0", "alibi-1"], "rope", study="a")
    write_run(runs, "dead", pos="t5", study="b", status="failed", reason="out of memory")
    (runs / "a" / "alibi-0" / "checkpoint.pt").write_bytes(b"weights")
    monkeypatch.chdir(tmp_path)
    return runs


def test_only_the_named_runs_are_reported_in_their_order(runs):
    named = ["runs/a/alibi-0/checkpoint.pt", "runs/a/rope-1/", f"{runs}/a/alibi-1"]
    assert main([f"checkpoint={','.join(named)}"]) == 0
    (directory,) = (path for path in Path("reports").iterdir() if path.is_dir())
    assert directory.name.startswith("a-3-runs-")
    rows = read(directory / "summary.csv")
    found = [(row["study"], row["run"], row["arm"]) for row in rows]
    assert found == [("a", "alibi-0", "alibi"), ("a", "rope-1", "rope"), ("a", "alibi-1", "alibi")]
    arms = [(row["arm"], row["reference"], row["seeds_finished"]) for row in read(directory / "arms.csv")]
    assert arms == [("alibi", "true", "2"), ("rope", "false", "1")]
    page = (directory / "index.html").read_bytes()
    assert str(runs).encode() not in page
    # The command that it names writes it again.
    (command,) = [row["value"] for row in read(directory / "facts.csv") if row["key"] == "report_command"]
    assert command.startswith("python report.py checkpoint=runs/a/alibi-0,runs/a/rope-1,runs/a/alibi-1 ")
    assert main(shlex.split(command)[2:]) == 0
    assert (directory / "index.html").read_bytes() == page


def test_runs_of_two_studies_keep_their_studies_and_one_run_names_its_report(runs):
    assert main(["checkpoint=runs/b/rope-0,runs/a/rope-0", "reference=a: rope"]) == 0
    (directory,) = (path for path in Path("reports").iterdir() if path.is_dir())
    assert [row["arm"] for row in read(directory / "arms.csv")] == ["b: rope", "a: rope"]
    assert main(["checkpoint=runs/a/rope-1", "reports=elsewhere"]) == 0
    assert [row["run"] for row in read(Path("elsewhere") / "rope-1" / "summary.csv")] == ["rope-1"]


def test_runs_of_one_study_in_two_places_are_one_study(runs):
    (runs / "a" / "alibi-1").rename(runs.parent / "moved")
    (runs.parent / "other" / "a").mkdir(parents=True)
    (runs.parent / "moved").rename(runs.parent / "other" / "a" / "alibi-1")
    assert main(["checkpoint=runs/a/alibi-0,other/a/alibi-1"]) == 0
    (directory,) = (path for path in Path("reports").iterdir() if path.is_dir())
    assert [row["seeds_finished"] for row in read(directory / "arms.csv")] == ["2"]
