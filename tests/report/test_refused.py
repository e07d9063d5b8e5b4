"""Impossible reports are refused in one line, and nothing is written."""

import shutil

import pytest

from poslab.commands.report import main
from support.records import write_run


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Studies a and b with a finished run, b, c and d with a failed one; k has only its archive."""
    home = tmp_path_factory.mktemp("home")
    for study in ("a", "b", "k"):
        write_run(home / "runs", "rope-0", study=study)
    for study in ("b", "c"):
        write_run(home / "runs", "dead", pos="t5", study=study, status="failed", reason="out of memory")
    write_run(home / "runs", "diverged", study="d", status="diverged", reason="nan at step 4")
    assert main(["study=k", f"runs={home}/runs", f"reports={home}/reports", "keep=true"]) == 0
    shutil.rmtree(home / "runs" / "k")
    return home


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("study=a,a", "study=a,a names a twice"),
        ("study=a,b,gone", "study=gone has no records; studies with records: "),
        ("study=a,", "study=a, lacks a name; studies with records: "),
        ("study=a,c", "study=c has no finished run: 1 failed (out of memory); run its command again"),
        ("study=d", "1 diverged (nan at step 4); the same command does not repeat them"),
        ("study=a,../b", "study=../b has no records"),
        ("study=../reports/k", "has no records"),
        ("runs=nowhere", "no records in nowhere; train a study first"),
        ("study=k keep=yes", "keep=yes is unknown: write keep=true"),
        ("study=a,b keep=true", "keep=true archives the records of one study"),
        ("study=k keep=true", "keep=true archives one study, and runs has no records of 'k'"),
        ("checkpoint=runs/b/rope-0 keep=true", "leave keep= out"),
        ("checkpoint=runs/a/rope-0 study=a", "checkpoint= already names the runs: leave study= out"),
        ("checkpoint=runs/a/rope-0 runs=runs", "leave runs= out"),
        ("checkpoint=runs/a/rope-0,runs/a/rope-0/", "rope-0 of study=a is named twice"),
        ("checkpoint=runs/a/gone", "checkpoint=runs/a/gone does not exist: name a run directory"),
        ("checkpoint=runs/a/rope-0,", "checkpoint= lacks a name"),
        ("checkpoint=runs/a", "a has no record of a run"),
        ("checkpoint=runs/a/rope-0/metrics.csv", "is not the checkpoint.pt of a run"),
        ("checkpoint=runs/b/dead", "study=b has no finished run: 1 failed (out of memory)"),
        # In quotes, as for train.py.
        ('checkpoint=runs/a/rope-0 reference="fox"', "reference=fox is no arm of this study"),
    ],
)
def test_it_is_refused_in_one_line(home, arguments, expected, capsys, monkeypatch):
    monkeypatch.chdir(home)
    before = sorted(home.rglob("*"))
    assert main(arguments.split()) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert expected.replace("'", "") in shown.err.replace("'", "")
    assert sorted(home.rglob("*")) == before
